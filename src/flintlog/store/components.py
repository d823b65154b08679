"""The components of a store, and how they are made from a configuration.

Each component is described in its own module; `engine.py` starts and stops them. This module alone decides which kind
of log a store has: its own, or a ledger's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flintlog.disk.media.medium import PAGE_BYTES, Medium
from flintlog.disk.segments.allocator import SegmentAllocator
from flintlog.disk.segments.buffer_pool import TransientStorePool
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore
from flintlog.format.config_json import listed_topics, named_queue_types
from flintlog.format.index_file import IndexLayout
from flintlog.kernel import FastDispatch
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.flush.flush_stages import FlushStages
from flintlog.store.flush.flushing import Flushing
from flintlog.store.flush.ledger_wait import LedgerFlushing
from flintlog.store.flush.waiters import PutCounts
from flintlog.store.index.index_service import IndexService
from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog
from flintlog.store.ledger.ledger_files import LedgerFiles
from flintlog.store.ledger.ledger_tail import body_check
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.log.commit_log import CommitLog
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.disk_use import full_log_paths
from flintlog.store.log.log import Log
from flintlog.store.log.queue_offsets import QueueOffsets
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.queues.queue_files import QueueFiles, find_batch_topics
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.runtime.lifecycle import Lifecycle
from flintlog.store.settings.json_file import JsonFile

MAX_SCAN_THREADS = 8


@dataclass(slots=True)
class Components:
    """What one store is made of."""

    paths: StorePaths
    medium: Medium
    segments: SegmentQueue
    commit_log: Log
    fast_dispatch: FastDispatch
    queues: QueueTable
    index: IndexService | None
    checkpoint: CheckpointFile
    damage: DamageMap
    allocator: SegmentAllocator
    pool: TransientStorePool | None


def make_components(root: Path, config: StoreConfig, medium: Medium, now_ms: Milliseconds) -> Components:
    """Everything that a store on this medium is made of; no file is touched yet.

    Queues have the kinds that the configuration names; those of `topics.json` are set once it is loaded.
    """
    paths = StorePaths.of(root, config)
    checkpoint = CheckpointFile(paths.checkpoint, medium)
    fast_dispatch = FastDispatch(
        delay_levels_ms=config.delay_levels_ms, lmq=config.enable_lmq and config.enable_multi_dispatch
    )
    pool = _make_pool(config)
    allocator = SegmentAllocator(
        medium,
        pool=pool,
        fast_fail_if_no_buffer=config.fast_fail_if_no_buffer_in_store_pool,
        warm_up=config.warm_mapped_file_enable,
        warm_up_flush_bytes=config.flush_least_pages_when_warm_mapped_file * PAGE_BYTES,
        touch_ahead_bytes=config.warm_ahead_bytes,
        for_syncs=config.flush == "sync",
    )
    segments = SegmentQueue(
        paths.commit_logs,
        config.mapped_file_size_commit_log,
        medium,
        allocator=allocator,
        read_only_directories=paths.read_only_commit_logs,
        full_directories=lambda: full_log_paths(paths, config, medium),
    )
    offsets = QueueOffsets()
    return Components(
        paths=paths,
        medium=medium,
        segments=segments,
        commit_log=_make_log(config, paths, medium, segments, fast_dispatch, offsets, now_ms),
        fast_dispatch=fast_dispatch,
        queues=_make_queues(root, config, medium, now_ms, offsets),
        index=_make_index(config, medium, now_ms, paths, checkpoint, segments),
        checkpoint=checkpoint,
        damage=DamageMap(),
        allocator=allocator,
        pool=pool,
    )


def make_flushing(
    config: StoreConfig, parts: Components, dispatcher: Dispatcher, lifecycle: Lifecycle, counted: PutCounts
) -> Flushing:
    """What makes puts durable, and lets them wait for it."""
    log = parts.commit_log
    if isinstance(log, LedgerCommitLog):
        return LedgerFlushing(log, config, parts, dispatcher, lifecycle, counted)
    return FlushStages(config, parts, dispatcher, lifecycle, counted)


def _found_size(directory: Path, medium: Medium) -> int | None:
    return next((info.size for info in medium.listing(directory) if info.size), None)


def _make_pool(config: StoreConfig) -> TransientStorePool | None:
    if not config.transient_store_pool_enable or config.broker_role == "SLAVE" or config.write_without_mmap:
        return None
    return TransientStorePool(config.transient_store_pool_size, config.mapped_file_size_commit_log)


def _make_log(
    config: StoreConfig,
    paths: StorePaths,
    medium: Medium,
    segments: SegmentQueue,
    fast_dispatch: FastDispatch,
    offsets: QueueOffsets,
    now_ms: Milliseconds,
) -> Log:
    if paths.ledger is None:
        return CommitLog(config, segments, fast_dispatch, offsets, now_ms)
    files = LedgerFiles(
        paths.ledger,
        medium,
        data_file_bytes=segments.segment_size,
        index_file_bytes=_found_size(paths.ledger / "index", medium) or config.ledger_index_file_size,
        data=segments,
        data_directories=paths.commit_logs,
        is_intact=body_check(config),
        cut_directory=paths.cut,
    )
    return LedgerCommitLog(files, paths, medium, config, fast_dispatch, offsets, now_ms)


def _make_queues(
    root: Path,
    config: StoreConfig,
    medium: Medium,
    now_ms: Milliseconds,
    offsets: QueueOffsets,
) -> QueueTable:
    files = QueueFiles(
        consume_queue=config.mapped_file_size_consume_queue,
        batch_consume_queue=config.mapped_file_size_batch_consume_queue,
        extension=config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None,
    )
    return QueueTable(root, medium, files, offsets, topic_queue_types=config.topic_queue_types, now_ms=now_ms)


def _make_index(
    config: StoreConfig,
    medium: Medium,
    now_ms: Milliseconds,
    paths: StorePaths,
    checkpoint: CheckpointFile,
    segments: SegmentQueue,
) -> IndexService | None:
    if not config.message_index_enable or not config.index_file_write_enable:
        return None

    def on_full(end_timestamp: int) -> None:
        segments.flush_all()  # under async flush the index may be ahead of what is durable of the log
        checkpoint.set(index_msg_timestamp=end_timestamp)
        checkpoint.flush()

    return IndexService(
        paths.index,
        medium,
        IndexLayout(config.max_hash_slot_num, config.max_index_num),
        now_ms=now_ms,
        on_full=on_full,
        max_query_count=config.max_msgs_num_batch,
    )


def load_queue_types(paths: StorePaths, medium: Medium) -> dict[str, str]:
    """The queue types that `topics.json` names, and those of queues on disk whose topics it does not list.

    A `topics.json` that does not parse is reported when topics are loaded.
    """
    try:
        table = JsonFile(paths.topics, medium).load() or {}
    except DamagedStore:
        table = {}
    listed = listed_topics(table)
    found = find_batch_topics(paths.root, medium)
    return {topic: kind for topic, kind in found.items() if topic not in listed} | named_queue_types(table)


def scan_threads() -> int:
    return min(MAX_SCAN_THREADS, os.cpu_count() or 1)
