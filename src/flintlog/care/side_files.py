"""Checks of the files beside log, queues and index: `config/*.json`, the timer's files."""

from __future__ import annotations

from flintlog.care.queue_ends import queue_end
from flintlog.care.store_files import StoreFiles
from flintlog.derive.derived_files import QueueKey
from flintlog.derive.finding import Finding
from flintlog.derive.findings import Judgement
from flintlog.derive.side_checks import (
    check_consumer_offsets,
    check_delay_offsets,
    check_timer_check,
    check_timer_log,
    parse_config,
)
from flintlog.format import names

_CHECKS = {
    "consumerOffset.json": check_consumer_offsets,
    "delayOffset.json": check_delay_offsets,
    "lmqConsumerOffset.json": check_consumer_offsets,
}


def check_side_files(files: StoreFiles, judgement: Judgement) -> tuple[list[Finding], list[str]]:
    """Everything under `config/`, and the timer's files; findings and notes."""
    findings: list[Finding] = []
    notes: list[str] = []

    def max_offset(key: QueueKey) -> int | None:
        tally = judgement.queues.get(key)
        last = max((stretch.stop for stretch in tally.records), default=0) if tally is not None else 0
        queue = files.queues.get(key)
        return max(last, 0 if queue is None else queue_end(files, queue))

    directory = files.root / names.CONFIG
    present = {info.name: info for info in files.medium.listing(directory) if not info.is_directory}
    for name in sorted(present):
        path = directory / name
        if not name.endswith(".json") or not present[name].size:
            continue
        has_backup = name + names.BACKUP_SUFFIX in present
        table, broken = parse_config(files.medium.read(path), str(path), has_backup=has_backup)
        findings += broken
        if table is not None and name in _CHECKS and not files.is_running:
            findings += _CHECKS[name](table, str(path), max_offset)
    findings += check_timer_log(files.read, files.timer_log, judgement.log, is_running=files.is_running)
    check = directory / names.TIMER_CHECK
    data = files.small(check)
    if data is not None:
        end = files.timer_log[-1].end if files.timer_log else 0
        findings += check_timer_check(data, str(check), end, max_offset, is_running=files.is_running)
    return findings, notes
