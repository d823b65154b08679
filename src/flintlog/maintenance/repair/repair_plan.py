"""What a repair will do, before it does anything: from findings to steps, and to the messages that are lost.

    finding                                            step
    empty-file, foreign-file                           move-away     the file goes beside the store
    misnamed-log-file                                  rename        the file gets its name (`right_names`)
    wrong-file-size (log)                              resize        zeros are added, or the surplus goes aside
    torn-tail                                          cut           the log ends there; the bytes go aside
    damaged-record                                     stand-in      a record that says so takes the lost one's place
    damaged-range                                      fill          the same for all that lay there
    misplaced-record                                   mend-place    the bit that names another place is set right
    damaged-blank                                      end-mark      the mark is written again
    damaged-config                                     restore       from its .bak
    timer-beyond-log, damaged-timer                    drop-timer    the timer reads its queue again
    missing-checkpoint, damaged-checkpoint             checkpoint    one that fits the log
    offset-beyond-queue                                offsets       back to the queue's end
    anything about queues / about the index            queues, index built again from the log
    short-log                                          queues        the same: they name what the log has lost
                                                       settle        opened and stopped once: everything agrees

Nothing here touches a file. What no step helps against is `left`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flintlog.checks.finding import Finding

_SIMPLE: Final = {
    "empty-file": ("move-away", "move the file away"),
    "foreign-file": ("move-away", "move the file away"),
    "torn-tail": ("cut", "end the log here; the bytes behind, which are no whole record, go aside"),
    "damaged-record": ("stand-in", "put a record that says so in the place of the lost one"),
    "misplaced-record": ("mend-place", "set the bit of the record right that names another place"),
    "damaged-range": ("fill", "put records that say so in the place of what is lost"),
    "damaged-blank": ("end-mark", "write the mark at the file's end again"),
    "timer-beyond-log": ("drop-timer", "move the timer's files away: it reads its queue again"),
    "damaged-timer": ("drop-timer", "move the timer's files away: it reads its queue again"),
    "missing-checkpoint": ("checkpoint", "write a checkpoint that fits the log"),
    "damaged-checkpoint": ("checkpoint", "write a checkpoint that fits the log"),
    "offset-beyond-queue": ("offsets", "bring offsets back to the end of their queues"),
}
_QUEUE_KINDS: Final = frozenset(
    {
        "missing-queues",
        "missing-queue",
        "missing-queue-entries",
        "wrong-queue-entries",
        "dangling-queue-entries",
        "damaged-queues",
        "short-log",
    }
)
_INDEX_KINDS: Final = frozenset(
    {
        "missing-index",
        "missing-index-entries",
        "wrong-index-entry",
        "wrong-index-header",
        "broken-index-chain",
        "stray-index-bytes",
    }
)
_ORDER: Final = (
    "move-away",
    "resize",
    "restore",
    "end-mark",
    "mend-place",
    "stand-in",
    "fill",
    "cut",
    "drop-timer",
    "offsets",
    "checkpoint",
    "queues",
    "index",
    "rename",
    "settle",
)
"""Renames come last, because the steps before them know the files by the names they have now."""

_STAGES: Final = (
    frozenset({"move-away", "resize", "rename"}),
    frozenset({"end-mark", "mend-place", "stand-in", "fill", "cut"}),
)
"""The files of the log, then what is in them; the store is looked at again after each."""

MISNAMED: Final = "misnamed-log-file"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done; `why` is the id of the finding it answers."""

    action: str
    what: str
    why: str | None = None
    file: str | None = None
    offset: int | None = None
    physical_offset: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message that no step brings back; what is not known of it is None."""

    physical_offset: int
    size: int
    why: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    message_id: str | None = None
    message_count: int = 1
    """How many messages it held: an inner batch is one record of several."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Everything that would be done, everything that is lost, and what stays as it is.

    `kept_count` is how many records of the log are whole, and stay.
    """

    steps: tuple[Step, ...] = ()
    lost: tuple[LostMessage, ...] = ()
    left: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    kept_count: int = 0


def plan_steps(
    findings: Sequence[Finding],
    *,
    restorable: frozenset[str],
    naming: Iterable[Step] = (),
    must_settle: bool = False,
) -> tuple[list[Step], list[Finding]]:
    """The steps in the order in which they are done, and the findings that have none.

    `restorable` are the config files whose `.bak` can be read, `naming` what is done about names of log files.
    `must_settle`: the store is opened and stopped even if nothing else is to be done.
    """
    steps = list(naming)
    named = {step.file for step in steps}
    left: list[Finding] = []
    for finding in findings:
        if finding.id == MISNAMED and finding.file in named:
            continue
        step = _step_for(finding, restorable)
        if step is None:
            left.append(finding)
        elif step.action not in ("queues", "index", "offsets", "drop-timer") or step.action not in _actions(steps):
            steps.append(step)
    if steps or must_settle:
        steps.append(Step("settle", "open and stop the store once, so that everything agrees with its log"))
    steps.sort(key=lambda step: _ORDER.index(step.action))
    return steps, left


def next_steps(planned: Sequence[Step], done: Sequence[Step]) -> list[Step]:
    """What of a plan is done now: first all that concerns the log, then the rest; nothing if it was done before.

    The log is whole before anything derived is given up: queues know which messages lay in its damaged places.
    """
    for stage in _STAGES:
        found = [step for step in planned if step.action in stage and step not in done]
        if found:
            return found
    return [] if set(planned) <= set(done) else list(planned)


def _actions(steps: Sequence[Step]) -> set[str]:
    return {step.action for step in steps}


def _step_for(finding: Finding, restorable: frozenset[str]) -> Step | None:
    kind = finding.id
    if kind == "damaged-checkpoint" and finding.file is not None and finding.file.endswith("timercheck"):
        kind = "timer-beyond-log"
    if kind in _SIMPLE:
        return _made(finding, *_SIMPLE[kind])
    if kind in _QUEUE_KINDS:
        return Step("queues", "build all queues again from the log", kind)
    if kind in _INDEX_KINDS:
        return Step("index", "build the index again from the log", kind)
    if kind == "wrong-file-size":
        return _resize(finding)
    if kind == "damaged-config" and finding.file in restorable:
        return _made(finding, "restore", "take the content of its .bak")
    return None


def _resize(finding: Finding) -> Step:
    folders = (finding.file or "").split("/")
    if "index" in folders[-2:]:
        return Step("index", "build the index again from the log", finding.id)
    if any(folder.startswith(("consumequeue", "batchconsumequeue")) for folder in folders[-4:-2]):
        return Step("queues", "build all queues again from the log", finding.id)
    return _made(finding, "resize", "bring the file to the length of its neighbours")


def _made(finding: Finding, action: str, what: str) -> Step:
    return Step(action, what, finding.id, finding.file, finding.offset, finding.physical_offset, finding.size)
