"""Flipped bits that `verify` does not find, and why none of them does harm beyond what it lies in.

The key is a kind of file and a part of it, as `regions.py` names them. A bit that is not found and not in here fails
the test. `only` limits a reason to some stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.flips.regions import PADDING
from tests.flips.scenes import SEALED


@dataclass(frozen=True)
class Reason:
    """Why a bit may go unseen, and in which stores: `killed`, `unsealed`, or all."""

    text: str
    only: str = ""

    def holds_in(self, scene_kind: str, *, is_clean: bool) -> bool:
        if self.only == "killed":
            return not is_clean
        if self.only == "unsealed":
            return scene_kind != SEALED
        return True


NO_SUM = Reason("RocketMQ's record has no sum over it; with `enabledAppendPropCRC` it is found", "unsealed")
NEVER_READ = Reason("nobody reads it: the rest of a closed file, or padding")
DROPPED = Reason("the next opening drops what lies after the end, and builds it again from the log", "killed")
REBUILT = Reason("in a file, or an entry, that the next opening builds again from the log", "killed")
HINT = Reason("a hint where an opening begins to read: it is believed only as far as the files bear it out")
TEXT = Reason("RocketMQ's text has no sum: another value that can be read is what the file says")
BACKUP = Reason("it is read only when the file itself cannot be")
TWICE = Reason("the note is there twice, each with a checksum: the whole one is read")
PRESENCE = Reason("that the file is there counts, not what is in it")
FIGURES = Reason("figures for people; they are counted again")

HARMLESS: dict[tuple[str, str], Reason] = {
    **{
        ("commit log", part): NO_SUM
        for part in (
            "flag",
            "sys flag",
            "born timestamp",
            "born host",
            "store timestamp",
            "store host",
            "reconsume times",
            "prepared transaction offset",
            "queue id",
            "queue offset",
            "topic",
            "properties",
        )
    },
    ("commit log", "unused"): NEVER_READ,
    ("consume queue", "unused"): DROPPED,
    ("consume queue", "offset"): REBUILT,
    ("batch consume queue", "unused"): DROPPED,
    ("batch consume queue", "offset"): REBUILT,
    ("batch consume queue", "compacted offset"): Reason("only RocketMQ's compaction reads it"),
    ("queue extension", "bitmap"): Reason("it cannot be computed again: nobody knows the filters of then"),
    ("queue extension", "unused"): NEVER_READ,
    ("queue extension", "end mark"): NEVER_READ,
    ("index", "entry: offset"): REBUILT,
    ("index", "unused"): DROPPED,
    **{
        ("checkpoint", part): HINT
        for part in (
            "log time",
            "queues' time",
            "index time",
            "master's offset",
            "confirmed offset",
            "queues' offset",
        )
    },
    ("checkpoint", PADDING): NEVER_READ,
    ("config/consumerOffset.json", "text"): TEXT,
    ("config/lmqConsumerOffset.json", "text"): TEXT,
    ("config/consumerFilter.json", "text"): TEXT,
    ("config/delayOffset.json", "text"): TEXT,
    ("config/topics.json", "text"): TEXT,
    ("config/subscriptionGroup.json", "text"): TEXT,
    ("config/consumerOffset.json.bak", "text"): BACKUP,
    ("config/delayOffset.json.bak", "text"): BACKUP,
    ("config/topics.json.bak", "text"): BACKUP,
    ("config/subscriptionGroup.json.bak", "text"): BACKUP,
    ("config/timermetrics", "text"): FIGURES,
    ("config/timermetrics.bak", "text"): FIGURES,
    ("config/transactionMetrics", "text"): FIGURES,
    ("config/transactionMetrics.bak", "text"): FIGURES,
    ("config/timercheck", "content"): HINT,
    ("config/timercheck", PADDING): NEVER_READ,
    ("timer wheel", "slot"): Reason("a slot whose time was delivered is never read again"),
    ("timer wheel", "unused"): Reason("a slot counts only if it carries the time that is asked for"),
    ("timer log", "unused"): NEVER_READ,
    ("timer log", "topic hash"): FIGURES,
    ("timer log", "unit"): Reason(
        "the slot decides when it is due: a time within its second, or of what was delivered, is not read"
    ),
    ("timer log", "reserved"): NEVER_READ,
    ("ledger: checkpoint", "content"): Reason("how far the group has committed: the group tells it again"),
    ("ledger: currterm", "content"): TEXT,
    **{
        (f"flintlog/{name}.json", "content"): TWICE
        for name in ("batches", "deleted", "queues", "stop", "delay", "options")
    },
    ("flintlog/writer", "content"): Reason("it is compared with `abort`: where they differ, less is believed"),
    ("abort", "content"): PRESENCE,
    ("lock", "content"): PRESENCE,
}


def reason_for(scene_kind: str, file: str, part: str, *, is_clean: bool) -> str | None:
    """Why a bit of this part may go unseen in this store; None when it must be found."""
    reason = HARMLESS.get((file, part))
    return reason.text if reason is not None and reason.holds_in(scene_kind, is_clean=is_clean) else None
