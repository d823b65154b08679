"""Plans a repair: from findings to steps. Pure; no file is touched.

    finding                                            step
    empty-file, foreign-file                           move-away     move the file beside the store
    misnamed-log-file                                  rename        give the file its right name (`right_names`)
    wrong-file-size (log)                              resize        add zeros, or keep the surplus and cut it
    torn-tail                                          cut           end the log there; keep the bytes
    damaged-record                                     stand-in      replace the record by one that is marked as lost
    damaged-range                                      fill          the same for everything that lay there
    misplaced-record                                   mend-place    correct the bit that names another place
    damaged-blank                                      end-mark      write the mark again
    damaged-config                                     restore       take the content of its .bak
    timer-beyond-log, damaged-timer                    drop-timer    the timer reads its queue again
    missing-checkpoint, damaged-checkpoint             checkpoint    write one that fits the log
    offset-beyond-queue                                offsets       lower it to the queue's end
    anything about queues / about the index            queues, index build them again from the log
    short-log                                          queues        the same: they name messages that the log has lost
                                                       settle        open and stop the store once

A finding for which there is no step is `left`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flintlog.checks.finding import Finding

_SIMPLE: Final = {
    "empty-file": ("move-away", "move the file away"),
    "foreign-file": ("move-away", "move the file away"),
    "torn-tail": ("cut", "end the log here; the bytes after it, which are no whole record, are kept beside the store"),
    "damaged-record": ("stand-in", "replace the lost record by one that is marked as lost"),
    "misplaced-record": ("mend-place", "correct the bit of the record that names another place"),
    "damaged-range": ("fill", "replace what is lost by records that are marked as lost"),
    "damaged-blank": ("end-mark", "write the mark at the file's end again"),
    "timer-beyond-log": ("drop-timer", "move the timer's files away: it reads its queue again"),
    "damaged-timer": ("drop-timer", "move the timer's files away: it reads its queue again"),
    "missing-checkpoint": ("checkpoint", "write a checkpoint that fits the log"),
    "damaged-checkpoint": ("checkpoint", "write a checkpoint that fits the log"),
    "offset-beyond-queue": ("offsets", "lower offsets to the end of their queues"),
}
_QUEUE_KINDS: Final = frozenset({
    "missing-queues", "missing-queue", "missing-queue-entries", "wrong-queue-entries", "dangling-queue-entries",
    "damaged-queues", "short-log",
})  # fmt: skip
_INDEX_KINDS: Final = frozenset({
    "missing-index", "missing-index-entries", "wrong-index-entry", "wrong-index-header", "broken-index-chain",
    "stray-index-bytes",
})  # fmt: skip
_ORDER: Final = (
    "move-away", "resize", "restore", "end-mark", "mend-place", "stand-in", "fill", "cut", "drop-timer", "offsets",
    "checkpoint", "queues", "index", "rename", "settle",
)  # fmt: skip
"""Renames come after the steps that know files by their present names."""

_STAGES: Final = (
    frozenset({"move-away", "resize", "rename"}),
    frozenset({"end-mark", "mend-place", "stand-in", "fill", "cut"}),
)
"""First the files of the log, then their contents; the store is verified again after each."""

_ONCE: Final = frozenset({"queues", "index", "offsets", "drop-timer"})
"""Steps that answer all findings of their kind at once."""

MISNAMED: Final = "misnamed-log-file"


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `why` is the id of its finding."""

    action: str
    what: str
    why: str | None = None
    file: str | None = None
    offset: int | None = None
    physical_offset: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message that no step brings back; unknown fields are None."""

    physical_offset: int
    size: int
    why: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    message_id: str | None = None
    message_count: int = 1
    """More than one for an inner batch, which is one record with several messages."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The steps, the lost messages, and the findings for which there is no step.

    `kept_count` is the number of intact records in the log.
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
    """The steps in their order, and the findings for which there is none.

    `restorable` are the config files whose `.bak` can be read, `naming` the steps about names of log files.
    `must_settle`: open and stop the store even if there is no other step.
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
        elif step.action not in _ONCE or all(step.action != other.action for other in steps):
            steps.append(step)
    if steps or must_settle:
        steps.append(Step("settle", "open and stop the store once, so that everything agrees with its log"))
    steps.sort(key=lambda step: _ORDER.index(step.action))
    return steps, left


def next_steps(planned: Sequence[Step], done: Sequence[Step]) -> list[Step]:
    """The steps of a plan to do now: first those that change the log, then the rest; none if all were done before.

    The log is mended before queues are dropped: they know which messages lay in its damaged places.
    """
    for stage in _STAGES:
        found = [step for step in planned if step.action in stage and step not in done]
        if found:
            return found
    return [] if set(planned) <= set(done) else list(planned)


def _step_for(finding: Finding, restorable: frozenset[str]) -> Step | None:
    kind = finding.id
    if kind == "damaged-checkpoint" and finding.file is not None and finding.file.endswith("timercheck"):
        kind = "timer-beyond-log"
    folders = (finding.file or "").split("/") if kind == "wrong-file-size" else [""]
    if kind in _SIMPLE:
        return _made(finding, *_SIMPLE[kind])
    if kind in _INDEX_KINDS or "index" in folders[-2:]:
        return Step("index", "build the index again from the log", finding.id)
    if kind in _QUEUE_KINDS or any(each.startswith(("consumequeue", "batchconsumequeue")) for each in folders[-4:-2]):
        return Step("queues", "build all queues again from the log", finding.id)
    if kind == "wrong-file-size":
        return _made(finding, "resize", "bring the file to the length of its neighbours")
    if kind == "damaged-config" and finding.file in restorable:
        return _made(finding, "restore", "take the content of its .bak")
    return None


def _made(finding: Finding, action: str, what: str) -> Step:
    return Step(action, what, finding.id, finding.file, finding.offset, finding.physical_offset, finding.size)
