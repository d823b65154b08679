"""Checks the files beside log, queues and index: `config/*.json`, flintlog's own notes, the timer's files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from flintlog.checks.derived_files import DataFile
from flintlog.checks.finding import ERROR, Finding
from flintlog.checks.judge import Judgement, LogFacts
from flintlog.checks.side_checks import check_consumer_offsets, check_delay_offsets, check_queue_types, parse_config
from flintlog.checks.timer_check import TimerFilesView, check_timer
from flintlog.format import names
from flintlog.format.config_json import JsonObject
from flintlog.format.queue_entry import QueueKey
from flintlog.format.record import HEAD_TO_OFFSET
from flintlog.maintenance.inspect.queue_ends import queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.runtime.note_file import Trust, damaged_note, parse_note
from flintlog.store.settings.config_shapes import check_shape

_CHECKS = {
    "consumerOffset.json": check_consumer_offsets,
    "delayOffset.json": check_delay_offsets,
    "lmqConsumerOffset.json": check_consumer_offsets,
}


def check_side_files(files: StoreFiles, judgement: Judgement, facts: LogFacts, *, is_quick: bool) -> list[Finding]:
    """Findings about everything under `config/`, the notes under `flintlog/`, and the timer's files."""
    findings: list[Finding] = []

    def max_offset(key: QueueKey) -> int | None:
        tally = judgement.queues.get(key)
        last = max((stretch.stop for stretch in tally.records), default=0) if tally is not None else 0
        queue = files.queues.get(key)
        return max(last, 0 if queue is None else queue_end(files, queue))

    directory = files.root / names.CONFIG
    for name in sorted(_config_names(files)):
        path = directory / name
        table, broken = _read_config(files, path)
        findings += broken
        if table is not None and name in _CHECKS and not files.is_running:
            findings += _CHECKS[name](table, str(path), max_offset)
        if table is not None and path == files.paths.topics and not files.is_running:
            findings += check_queue_types(table, str(path), _batch_topics(files), _declared_types(files))
    findings += _check_notes(files)
    return findings + check_timer(
        _timer(files), files.read, _record_heads(files), judgement.log, facts, max_offset, is_quick=is_quick
    )


def _batch_topics(files: StoreFiles) -> Iterator[str]:
    return (topic for (topic, _), queue in files.queues.items() if queue.is_batch)


def _declared_types(files: StoreFiles) -> dict[str, str]:
    """The queue types that the configuration names or, without one, that the last writer noted."""
    declared = files.noted.get("topic_queue_types", {}) if files.given is None else files.given.topic_queue_types
    return {str(topic): str(kind) for topic, kind in declared.items()} if isinstance(declared, Mapping) else {}


def _check_notes(files: StoreFiles) -> list[Finding]:
    """Findings about flintlog's own notes whose copies are both damaged."""
    own = files.paths.own
    paths = [own / info.name for info in files.medium.listing(own) if info.name.endswith(".json")]
    read = {path: files.small(path) for path in paths}
    found = {path: parse_note(data, object) for path, data in read.items() if data is not None}
    return [
        damaged_note(path, note.problem, "open the store: it takes what it can from the log")
        for path, note in found.items()
        if note.trust is Trust.DAMAGED
    ]


def _config_names(files: StoreFiles) -> set[str]:
    """Every config file that exists, or whose backup exists."""
    listed = (info.name for info in files.medium.listing(files.root / names.CONFIG) if not info.is_directory)
    found = {name.removesuffix(names.BACKUP_SUFFIX) for name in listed}
    return {name for name in found if name.endswith(".json")}


def _read_config(files: StoreFiles, path: Path) -> tuple[JsonObject | None, list[Finding]]:
    """A config file, read as an opening reads it, and the findings about it."""
    data, backup = files.small(path), files.small(path.with_name(path.name + names.BACKUP_SUFFIX))
    accept = partial(check_shape, path, files.medium)
    if data is not None and data.strip():
        return parse_config(data, str(path), accept, has_backup=backup is not None)
    table, broken = (
        parse_config(backup, str(path), accept, has_backup=False) if backup and backup.strip() else (None, [])
    )
    if table is None or (data is None and files.is_running):
        return table, broken  # a running broker may be replacing it
    evidence = f"the file is {'missing' if data is None else 'empty'}, and its .bak is not"
    return table, [Finding("damaged-config", ERROR, evidence, "restore it from its .bak", str(path))]


def _timer(files: StoreFiles) -> TimerFilesView:
    wheel, check = files.root / names.TIMER_WHEEL, files.root / names.CONFIG / names.TIMER_CHECK
    info = files.medium.stat(wheel)
    return TimerFilesView(
        tuple(file for file in files.timer_log if file.size),
        None if info is None else DataFile(str(wheel), 0, info.size),
        str(check),
        files.small(check),
        0 if files.given is None else files.given.timer_precision_ms,
    )


def _record_heads(files: StoreFiles) -> Callable[[int], bytes | None]:
    """A function that returns the first bytes of the record at a physical offset."""

    def head_at(physical_offset: int) -> bytes | None:
        number = bisect_right(files.log, physical_offset, key=lambda file: file.base) - 1
        file = files.log[number] if number >= 0 else None
        if file is None or physical_offset + HEAD_TO_OFFSET.size > file.end:
            return None
        start = physical_offset - file.base
        return bytes(files.read(file.path, start, start + HEAD_TO_OFFSET.size))

    return head_at
