"""Random damage of a store's files, and what must still be true of the store once it was repaired.

A seed picks a golden store, one to three kinds of damage and their places, so each case can be repeated: a failing
assertion names its seed, and `check(seed, ...)` of `test_random_damage.py` runs it alone.

The truth is read from the undamaged store: every queue entry whose record no damage has touched must be at its queue
offset after the repair, with the record's bytes where they were.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flintlog import kernel
from flintlog.format.queue_entry import ENTRY_SIZE, PREFILL_ENTRY, parse_batch_queue_entries
from flintlog.maintenance.inspect.store_files import look_at

CASES: Final = ("plain", "batch", "transaction", "multi", "cqext", "delay", "halves")
PAGE: Final = 4096
FAR: Final = 1 << 60
_ENTRY: Final = struct.Struct("!qiq")
_QUEUE_ID_AT: Final = 12
_QUEUE_OFFSET_AT: Final = 20

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True, slots=True)
class Known:
    """A record of the undamaged log."""

    physical_offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.physical_offset + len(self.data)


@dataclass(slots=True)
class Truth:
    """What an undamaged store holds."""

    records: dict[int, Known] = field(default_factory=dict)
    places: dict[Place, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Truth:
        truth = cls(places=places_in(root))
        for file in look_at(root).log:
            data = Path(file.path).read_bytes()
            seen = kernel.scan(data, 0, len(data), file.base, check_crc=True)
            for index in range(seen.count):
                row = seen.row(index)
                start = row.physical_offset - file.base
                truth.records[row.physical_offset] = Known(row.physical_offset, data[start : start + row.size])
        return truth


def places_in(root: Path) -> dict[Place, tuple[int, int]]:
    """Where each queue entry of a store points: physical offset and size."""
    found: dict[Place, tuple[int, int]] = {}
    for queue in look_at(root).queues.values():
        for file in queue.files:
            data = Path(file.path).read_bytes()
            if queue.is_batch:
                for entry in parse_batch_queue_entries(data[: len(data) - len(data) % 46]):
                    if entry.is_valid:
                        place = queue.topic, queue.queue_id, entry.base_offset
                        found[place] = entry.physical_offset, entry.size
                continue
            for number, (at, size, _) in enumerate(_ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE])):
                if size > 0 and size != PREFILL_ENTRY.size:
                    found[queue.topic, queue.queue_id, file.base // ENTRY_SIZE + number] = at, size
    return found


class Damager:
    """Damages the copy of a store, and remembers which bytes of its log are not what they were."""

    def __init__(self, root: Path, truth: Truth, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.done: list[str] = []
        self._records = sorted(truth.records.values(), key=lambda record: record.physical_offset)
        self._log_size = self._log_files()[0].stat().st_size
        self._lost: list[tuple[int, int]] = []
        self._bases = {path.name: int(path.name) for path in self._log_files()}

    def damage(self) -> None:
        kinds = [self.chance.choice(KINDS) for _ in range(self.chance.choice((1, 1, 1, 2, 3)))]
        for kind in kinds:
            kind(self)

    def is_intact(self, record: Known) -> bool:
        return not any(start < record.end and record.physical_offset < stop for start, stop in self._lost)

    # ------------------------------------------------------------------ files

    def _log_files(self) -> list[Path]:
        return sorted(path for path in (self.root / "commitlog").iterdir() if path.is_file())

    def _derived_files(self) -> list[Path]:
        folders = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "timerlog")
        return sorted(path for name in folders for path in (self.root / name).rglob("*") if path.is_file())

    def _any_file(self) -> Path | None:
        groups = [self._log_files(), self._derived_files(), [self.root / "checkpoint"]]
        return self.chance.choice(
            [path for path in self.chance.choice(groups) if path.exists()] or self._derived_files()
        )

    def _note(self, what: str, path: Path, start: int = 0, stop: int | None = None) -> None:
        size = self._log_size if stop is None else stop
        self.done.append(f"{what} {path.relative_to(self.root)} [{start}, {size})")
        if path.parent.name == "commitlog":
            self._lost.append((self._bases[path.name] + start, self._bases[path.name] + size))

    def _patch(self, what: str, path: Path, start: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(data)
        self._note(what, path, start, start + len(data))

    def _record(self) -> tuple[Path, Known] | None:
        """A record whose file is there."""
        inside = [
            (path, record)
            for path in self._log_files()
            for record in self._records
            if (base := self._bases[path.name]) <= record.physical_offset < record.end <= base + path.stat().st_size
        ]
        return self.chance.choice(inside) if inside else None

    # ------------------------------------------------------------------ kinds of damage

    def flip_bits(self) -> None:
        path = self._any_file()
        size = 0 if path is None else path.stat().st_size
        if path is None or not size:
            return
        for _ in range(self.chance.choice((1, 1, 1, 5))):
            at = self.chance.randrange(size)
            byte = path.read_bytes()[at] ^ (1 << self.chance.randrange(8))
            self._patch("flip", path, at, bytes([byte]))

    def flip_in_record(self) -> None:
        """A bit anywhere in a record, so that heads, topics and properties are hit often enough."""
        if (found := self._record()) is None:
            return
        path, record = found
        at = self.chance.randrange(len(record.data))
        start = record.physical_offset - self._bases[path.name] + at
        self._patch("flip in record", path, start, bytes([record.data[at] ^ (1 << self.chance.randrange(8))]))

    def flip_place(self) -> None:
        """A bit of a record's queue id or queue offset."""
        if (found := self._record()) is None:
            return
        path, record = found
        at, size = self.chance.choice(((_QUEUE_ID_AT, 4), (_QUEUE_OFFSET_AT, 8)))
        bit = self.chance.choice((self.chance.randrange(6), self.chance.randrange(size * 8)))
        number = int.from_bytes(record.data[at : at + size], "big") ^ (1 << bit)
        self._patch(
            "flip place", path, record.physical_offset - self._bases[path.name] + at, number.to_bytes(size, "big")
        )

    def zero_pages(self) -> None:
        if (path := self._any_file()) is None:
            return
        pages = -(-path.stat().st_size // PAGE)
        if pages:
            first = self.chance.randrange(pages)
            last = min(pages, first + self.chance.choice((1, 1, 4, 16)))
            stop = min(path.stat().st_size, last * PAGE)
            self._patch("zero", path, first * PAGE, bytes(stop - first * PAGE))

    def lose_records(self) -> None:
        """Several records in a row become noise or zeros."""
        if (found := self._record()) is None:
            return
        path, record = found
        base = self._bases[path.name]
        after = [
            each for each in self._records if record.physical_offset <= each.physical_offset < base + self._log_size
        ]
        last = after[min(len(after) - 1, self.chance.choice((0, 1, 3, 10)))]
        size = min(last.end, base + path.stat().st_size) - record.physical_offset
        data = self.chance.randbytes(size) if self.chance.random() < 0.5 else bytes(size)
        self._patch("lose records", path, record.physical_offset - base, data)

    def truncate(self) -> None:
        if (path := self._any_file()) is None:
            return
        size = path.stat().st_size
        new = self.chance.choice((0, self.chance.randrange(size + 1), size // PAGE // 2 * PAGE))
        with path.open("r+b") as file:
            file.truncate(new)
        self._note("truncate", path, new)

    def remove(self) -> None:
        if (path := self._any_file()) is None:
            return
        self._note("remove", path)
        path.unlink()

    def misname(self) -> None:
        """A log file under another name: nothing of it is lost."""
        named = [path for path in self._log_files() if path.name.isdigit()]
        if not named:
            return
        path = self.chance.choice(named)
        number = int(path.name) + self.chance.choice((1, 100, self._log_size // 2, 10 * self._log_size))
        name = self.chance.choice((f"{number:020d}", f"{path.name}.bak"))
        self.done.append(f"misname {path.name} {name}")
        if path.with_name(name).exists():
            return
        self._bases[name] = self._bases.pop(path.name)
        path.rename(path.with_name(name))

    def duplicate(self) -> None:
        named = [path for path in self._log_files() if path.name.isdigit()]
        if not named:
            return
        path = self.chance.choice(named)
        name = f"{int(path.name) + self._log_size * self.chance.choice((20, 7)):020d}"
        self.done.append(f"duplicate {path.name} {name}")
        self._bases[name] = FAR  # nothing that happens to the copy is a loss
        shutil.copy(path, path.with_name(name))

    def swap_queues(self) -> None:
        files = [path for path in self._derived_files() if path.parts[-4] == "consumequeue"]
        if len(files) > 1:
            one, other = self.chance.sample(files, 2)
            self.done.append(f"swap {one.relative_to(self.root)} {other.relative_to(self.root)}")
            first, second = one.read_bytes(), other.read_bytes()
            one.write_bytes(second)
            other.write_bytes(first)

    def remove_derived(self) -> None:
        name = self.chance.choice(("consumequeue", "index", "checkpoint"))
        path = self.root / name
        self.done.append(f"remove {name}")
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def stop_uncleanly(self) -> None:
        self.done.append("abort")
        (self.root / "abort").write_bytes(b"")


KINDS: Final[tuple[Callable[[Damager], None], ...]] = (
    Damager.flip_bits,
    Damager.flip_in_record,
    Damager.flip_in_record,
    Damager.flip_place,
    Damager.flip_place,
    Damager.zero_pages,
    Damager.lose_records,
    Damager.lose_records,
    Damager.truncate,
    Damager.remove,
    Damager.misname,
    Damager.duplicate,
    Damager.swap_queues,
    Damager.remove_derived,
    Damager.stop_uncleanly,
)


def moved_messages(root: Path, truth: Truth, damager: Damager) -> Iterator[str]:
    """Each intact message that is not where it was, in words."""
    after = places_in(root)
    data = {file.base: Path(file.path).read_bytes() for file in look_at(root).log}
    size = max(map(len, data.values()), default=1)
    for place, (at, length) in truth.places.items():
        record = truth.records.get(at)
        if record is None or not damager.is_intact(record):
            continue
        start = at % size
        if data.get(at - start, b"")[start : start + length] != record.data:
            yield f"{place}: the record at {at} is not what it was"
        elif after.get(place) != (at, length):
            yield f"{place}: the entry points at {after.get(place)} and not at {(at, length)}"
