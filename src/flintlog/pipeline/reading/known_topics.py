"""Checks that stores have a named topic: a misspelt one is an error, not a result without rows.

    consumequeue/, topics.json, deleted.json      the topics that a store knows; checked first, because that is cheap
    the end of the log                            topics that are not dispatched yet, or never were

A topic is refused only if it certainly does not exist: the whole log was searched, or there are queues, which lack only
the newest messages. Of a store at a URI less of the log's end is searched, because it has to be fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from flintlog.derive.splits import Gap, Split, scan_split
from flintlog.disk.places import is_uri
from flintlog.errors import DamagedStore, FlintlogError, InvalidConfig
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from flintlog.pipeline.reading.logs import Log, find_end, find_logs, open_source, store_of
from flintlog.pipeline.reading.partitions import window_of
from flintlog.store.log.batch_markers import MARKER_TOPIC
from flintlog.store.options.option import did_you_mean
from flintlog.store.queues.deleted_queues import load_deleted
from flintlog.store.settings.json_file import JsonFile

LOOK_BYTES: Final = 256 * 1024 * 1024
"""How much of a log's end is searched for a topic that the store does not know."""

FETCHED_LOOK_BYTES: Final = 16 * 1024 * 1024
"""The same of a log at a URI."""

_MAX_NAMES: Final = 20


def check_topics(topics: Iterable[str], logs: Sequence[Log]) -> None:
    """`InvalidConfig` for the topics of which no store has anything."""
    missing = set(topics) - {MARKER_TOPIC}
    if not missing:
        return
    known = {topic for log in logs for topic in listed_topics(log)}
    missing -= known
    for log in logs if missing else ():
        found, is_all = _topics_at_end(log, missing)
        known |= found
        missing -= found
        if not missing or not (is_all or _queue_folders(log)):
            return
    if missing:
        raise refusal(sorted(missing), known, logs[0].uri)


def no_messages_of(topics: Sequence[str], paths: Sequence[str]) -> InvalidConfig:
    """The error of a job that found no messages of its topics."""
    known: set[str] = set()
    try:
        for log in find_logs(tuple(paths), strict=False):
            known |= listed_topics(log) | _topics_at_end(log, set())[0]
    except FlintlogError:  # there is nothing to name then
        pass
    return refusal(topics, known, paths[0])


def refusal(topics: Sequence[str], known: Iterable[str], where: str) -> InvalidConfig:
    """The error, with a suggestion or the existing topics."""
    names = sorted(known)
    near = next(filter(None, (did_you_mean(topic, names) for topic in topics)), None)
    some = f"there are: {', '.join(names[:_MAX_NAMES])}{', …' if len(names) > _MAX_NAMES else ''}" if names else None
    return InvalidConfig(f"there are no messages of topic {' or '.join(topics)}", path=where, advice=near or some)


def topics_of(logs: Sequence[Log], named: Iterable[str] | None) -> set[str]:
    """The topics that a job will read, as far as they are known: the named ones, or those that the stores list."""
    if named is not None:
        return set(named)
    return {topic for log in logs if not is_uri(log.uri) for topic in listed_topics(log)}


def listed_topics(log: Log) -> set[str]:
    """The topics that have queues in a store, are in its configuration, or were deleted."""
    paths, medium = store_of(log)
    found = {info.name for folder in _queue_folders(log) for info in medium.listing(folder) if info.is_directory}
    try:
        table = (JsonFile(paths.topics, medium).load() or {}).get("topicConfigTable")
    except DamagedStore:
        table = None
    deleted = load_deleted(paths.deleted, medium)
    return found | {*(table if isinstance(table, dict) else ())} | {queue.topic for queue in deleted.all()}


def _queue_folders(log: Log) -> list[Path]:
    """The directories with a queue of any topic."""
    paths, medium = store_of(log)
    folders = (paths.root / CONSUME_QUEUE, paths.root / BATCH_CONSUME_QUEUE)
    return [folder for folder in folders if medium.listing(folder)]


def _topics_at_end(log: Log, wanted: set[str]) -> tuple[set[str], bool]:
    """The topics of the newest records, until all wanted ones are found; and whether all records were read."""
    source, folder = open_source(log.uri)
    end, left = find_end(log), FETCHED_LOOK_BYTES if is_uri(log.uri) else LOOK_BYTES
    found: set[str] = set()
    for file in reversed(log.files):
        stop = min(end, file.end)
        start = max(file.base, stop - left)
        if start >= stop:
            continue
        split = Split(file, start, stop)
        for piece in scan_split(window_of(source, folder, split), split):
            found |= set() if isinstance(piece, Gap) else {topic for topic, _ in piece.queues}
        left -= stop - start
        if start > file.base or (wanted and wanted <= found):
            return found, False
    return found, True
