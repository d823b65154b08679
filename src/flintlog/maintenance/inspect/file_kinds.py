"""The kind of a file of a store, by its name and its directories."""

from __future__ import annotations

from pathlib import Path

from flintlog.format import names
from flintlog.store.paths import LEDGER_PREFIX

_KINDS = {
    names.COMMIT_LOG: "log",
    names.CONSUME_QUEUE: "queue",
    names.CONSUME_QUEUE_EXT: "extension",
    names.BATCH_CONSUME_QUEUE: "batch-queue",
    names.INDEX: "index",
    names.TIMER_LOG: "timer-log",
}
_NAMES = {
    names.CHECKPOINT: "checkpoint",
    names.ABORT: "abort",
    names.ABORT_BACKUP: "abort",
    names.LOCK: "lock",
    names.TIMER_WHEEL: "timer-wheel",
    names.TIMER_CHECK: "timer-check",
}


def _ledger_kind(path: Path) -> str:
    if names.is_number(path.name):
        return {"data": "log", "index": "ledger-index"}.get(path.parts[-2], "other")
    is_state = path.name.removesuffix(names.BACKUP_SUFFIX) in ("currterm", names.CHECKPOINT)
    return "ledger-state" if is_state else "other"


def kind_of(path: Path) -> str:
    """The kind of a file, by its name and its directories: log, queue, index, checkpoint, config …

    >>> kind_of(Path("consumequeue/orders/0/00000000000000000000"))
    'queue'
    """
    if any(part.startswith(LEDGER_PREFIX) for part in path.parts[-3:-1]):
        return _ledger_kind(path)
    if path.name in _NAMES:
        return _NAMES[path.name]
    if path.name.removesuffix(names.BACKUP_SUFFIX).endswith(".json"):
        return "config"
    for depth in (1, 3):  # a log or index file lies in its directory, a queue file two below
        folder = path.parts[-1 - depth] if len(path.parts) > depth else ""
        if folder in _KINDS and names.is_number(path.name):
            return _KINDS[folder]
    return "config" if len(path.parts) > 1 and path.parts[-2] == names.CONFIG else "other"
