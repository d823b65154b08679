"""A world whose disk also flips bits, one at a time, while nobody uses the store.

What it checks on top of `World`:

- a bit in a record costs at most the message of that record, whatever is built again afterwards;
- a bit in a queue costs at most one entry, and a consumer who reads page by page meets everything else;
- a bit in the checkpoint or in a note beside it costs nothing, and one in the index at most answers to queries;
- whatever is served is what was sent.

Without a CRC over whole records (`enabled_append_prop_crc`) nobody can tell a rotten topic or tag from a right one:
there only those bytes of a record are hit that its lengths, its own offset or the CRC of its body protect.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from flintlog import DamagedRecord, Message, Receipt, StoreConfig, StoredMessage
from tests.faults.world import (
    ROOT,
    SEGMENT_BYTES,
    Sent,
    World,
    assert_in_queue,
    derived,
    files_below,
    is_same,
    is_there,
    place_of,
)

BODY_AT = 88
PROTECTED = (*range(12), *range(28, 36))
"""Size, magic, body CRC and the record's own offset."""
KINDS = ("log", "log", "log", "queue", "queue", "queue", "index", "checkpoint", "note")
NOTES = ("stop.json", "queues.json")
ENTRY_BYTES = 20


class DecayingWorld(World):
    """One store directory through its crashes, on a disk that rots."""

    def __init__(self, config: StoreConfig, *, torn_creates: bool = False) -> None:
        self.victims: dict[int, Sent] = {}  # a bit was flipped in the record
        self.victim_entries: set[tuple[str, int, int]] = set()  # a bit was flipped in the queue's entry
        self.flipped_places: set[int] = set()
        self.are_queues_comparable = True
        self.is_index_doubtful = False
        super().__init__(config, torn_creates=torn_creates)

    # What can be done

    def decay(self, seed: int) -> None:
        """Stop somehow, flip a bit, and start again."""
        self.relax()
        chance = random.Random(seed)
        ending = chance.choice(("stop", "kill", "crash"))
        if ending == "stop":
            self.end()
        else:
            found = self.medium.kill() if ending == "kill" else self.medium.crash(seed)
            self.abandon()
            self.medium = found
        getattr(self, f"flip_in_{chance.choice(KINDS)}")(chance)
        self.store = self.reopened()
        if ending == "crash":
            self.forget_lost()

    def flip_in_log(self, chance: random.Random) -> None:
        sent = [*self.kept.values(), *self.loose.values()]
        if not sent:
            return
        if self.config.enabled_append_prop_crc:
            start, end = sent[0].receipt.physical_offset, max(each.receipt.end_offset for each in sent)
            at = chance.randrange(start // SEGMENT_BYTES * SEGMENT_BYTES, end + 200)
        else:
            victim = chance.choice(sent)
            body = range(BODY_AT, BODY_AT + len(victim.message.body))
            at = victim.receipt.physical_offset + chance.choice([chance.choice(PROTECTED), chance.choice(body)])
        self.flip_log_at(at, chance.randrange(8))

    def flip_log_at(self, at: int, bit: int) -> None:
        """Flip a bit at an offset of the log; the message that it hits, if there is one, may be lost."""
        path = ROOT / "commitlog" / f"{at // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
        if not self.medium.exists(path) or not self.medium.read(path):
            return
        self.medium.flip_bit(path, at % SEGMENT_BYTES, bit)
        self.flipped_places.add(at)
        self.are_queues_comparable = False
        for held in (self.kept, self.loose, self.deleted):
            hit = {o: s for o, s in held.items() if o <= at < s.receipt.end_offset}
            self.victims.update(hit)
            for offset in hit:
                del held[offset]

    def flip_in_queue(self, chance: random.Random) -> None:
        files = [(path, content) for path, content in files_below(self.medium, ROOT / "consumequeue") if content]
        if files:
            path, content = chance.choice(files)
            # Most files are short of being full: half of all bits are among the entries or just behind them.
            used = len(content.rstrip(b"\0")) + ENTRY_BYTES
            at = min(chance.randrange(chance.choice((used, len(content)))), len(content) - 1)
            self.medium.flip_bit(ROOT / "consumequeue" / path, at, chance.randrange(8))
            self.are_queues_comparable = False
            topic, queue_id, base = path.parts
            self.victim_entries.add((topic, int(queue_id), (int(base) + at) // ENTRY_BYTES))

    def flip_in_index(self, chance: random.Random) -> None:
        files = [info for info in self.medium.listing(ROOT / "index") if info.size]
        if files:
            file = chance.choice(files)
            self.medium.flip_bit(ROOT / "index" / file.name, chance.randrange(file.size), chance.randrange(8))
            self.is_index_doubtful = True

    def flip_in_checkpoint(self, chance: random.Random) -> None:
        path = ROOT / "checkpoint"
        # Without a log, a checkpoint that vouches for messages has the store refused: reported, and nothing lost.
        if self.medium.exists(path) and self.medium.read(path) and self.medium.listing(ROOT / "commitlog"):
            self.medium.flip_bit(path, chance.randrange(48), chance.randrange(8))
            self.is_index_doubtful = True  # it may vouch for files that a crash has torn

    def flip_in_note(self, chance: random.Random) -> None:
        path = ROOT / "flintlog" / chance.choice(NOTES)
        if self.medium.exists(path) and (content := self.medium.read(path)):
            self.medium.flip_bit(path, chance.randrange(len(content)), chance.randrange(8))

    def assert_no_doubts(self) -> None:
        """There is damage here."""

    def kill(self) -> None:
        """As in a world without decay, but for messages whose entry was hit."""
        self.relax()
        self.go_on_with(self.medium.kill())
        for sent in self.loose.values():
            if place_of(sent) not in self.victim_entries:
                assert_in_queue(self.store, sent)

    def note(self, message: Message, receipt: Receipt, had_failed: bool = False) -> None:
        super().note(message, receipt, had_failed)
        end = receipt.end_offset
        self.victims = {
            o: s for o, s in self.victims.items() if s.receipt.end_offset <= receipt.physical_offset or o >= end
        }
        place = (message.topic, message.queue_id, receipt.queue_offset)
        self.victim_entries.discard(place)

    # What must hold

    def check_everything(self) -> None:
        for sent in self.kept.values():
            assert is_there(self.store, sent), f"lost: {sent.receipt}"
        self.check_queues()
        self.check_index()
        self.assert_nothing_behind_the_end()
        if self.are_queues_comparable and not self.deleted and not self.has_deleted_damage:
            assert derived(self.store, self.medium)[0] == self.rebuilt()[0]

    def check_queues(self) -> None:
        served = {(info.topic, info.queue_id): self.consume(info.topic, info.queue_id) for info in self.store.queues()}
        for sent in self.kept.values():
            topic, queue_id, offset = place = place_of(sent)
            found = served.get((topic, queue_id), {}).get(offset)
            if place not in self.victim_entries:
                assert found == sent.receipt.physical_offset, f"not met by a consumer: {sent.receipt}"
            else:
                assert found in (sent.receipt.physical_offset, None), f"{found} in place of {sent.receipt}"

    def consume(self, topic: str, queue_id: int) -> dict[int, int]:
        """All messages that one meets who reads a queue from its start; physical offsets by queue offset."""
        served: dict[int, int] = {}
        offset = self.store.min_offset(topic, queue_id)
        while offset < self.store.max_offset(topic, queue_id):
            following, messages = self.read_page(topic, queue_id, offset)
            assert following > offset, (topic, queue_id, offset)
            offset = following
            for found in messages:
                known = {**self.loose, **self.victims, **self.deleted, **self.kept}.get(found.physical_offset)
                assert known is None or is_same(found, known.message), f"changed: {known.receipt}"
                served[found.queue_offset] = found.physical_offset
        return served

    def read_page(self, topic: str, queue_id: int, offset: int) -> tuple[int, Sequence[StoredMessage]]:
        """Where a consumer goes on, and what it was given."""
        try:
            page = self.store.get(topic, queue_id, offset)
        except DamagedRecord as damaged:
            return damaged.next_queue_offset or offset, ()
        return page.next_offset, page.messages

    def check_index(self) -> None:
        for sent in self.kept.values():
            hits = self.store.query(sent.message.topic, sent.message.keys[0], max_count=64)
            is_found = sent.receipt.physical_offset in [hit.physical_offset for hit in hits]
            assert is_found or self.is_index_doubtful, f"not in the index: {sent.receipt}"

    def assert_nothing_behind_the_end(self) -> None:
        """Flipped bits may lie there after a clean stop: nobody reads them, and what is written covers them."""
        end = self.store.max_physical_offset
        for name, content in files_below(self.medium, Path(ROOT / "commitlog")):
            base = int(str(name))
            behind = range(max(0, end - base), len(content))
            strays = {base + at for at in behind if content[at]} - self.flipped_places
            assert not strays, f"{name} holds bytes behind {end}"
