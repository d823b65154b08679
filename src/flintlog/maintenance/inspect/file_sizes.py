"""The file sizes of a store that lies there, and which topics have batch queues, read off its files.

Whoever only looks at a directory need not be told the sizes it was written with: every file of a kind has the
same size, so the first one that is found tells it. Where there is none, the configuration's stands; where
they differ, loading says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flintlog.disk.media.medium import FileInfo, Medium
from flintlog.format.config_json import BATCH_TYPE
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, is_number
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.options.values import DEFAULT_DELAY_LEVELS_MS
from flintlog.store.paths import StorePaths
from flintlog.store.settings.written_with import DELAY_LEVELS, load_options


def with_found_sizes(root: Path, config: StoreConfig, medium: Medium) -> StoreConfig:
    """The configuration with the sizes and kinds of what is there; an extension is read where there is one."""
    paths = StorePaths.of(root, config)
    logs = (*paths.commit_logs, *paths.read_only_commit_logs)
    changes: dict[str, object] = {}
    found = {
        "mapped_file_size_commit_log": _first_size(info for path in logs for info in medium.listing(path)),
        "mapped_file_size_consume_queue": _first_size(_queue_files(root / CONSUME_QUEUE, medium)),
        "mapped_file_size_batch_consume_queue": _first_size(_queue_files(root / BATCH_CONSUME_QUEUE, medium)),
        "mapped_file_size_consume_queue_ext": _first_size(_queue_files(root / CONSUME_QUEUE_EXT, medium)),
    }
    changes.update({name: size for name, size in found.items() if size is not None})
    noted = load_options(paths, medium).get(DELAY_LEVELS)
    if isinstance(noted, str) and config.delay_levels_ms == DEFAULT_DELAY_LEVELS_MS:
        changes[DELAY_LEVELS] = noted
    if found["mapped_file_size_consume_queue_ext"] is not None:
        changes["enable_consume_queue_ext"] = True
    batch = {info.name: BATCH_TYPE for info in medium.listing(root / BATCH_CONSUME_QUEUE) if info.is_directory}
    if batch:
        changes["topic_queue_types"] = {**batch, **config.topic_queue_types}
    return config.with_changes(**changes)


def _queue_files(folder: Path, medium: Medium) -> Iterator[FileInfo]:
    for topic in medium.listing(folder):
        for queue in medium.listing(folder / topic.name) if topic.is_directory else ():
            yield from medium.listing(folder / topic.name / queue.name) if queue.is_directory else ()


def _first_size(files: Iterator[FileInfo]) -> int | None:
    return next((info.size for info in files if not info.is_directory and info.size and is_number(info.name)), None)
