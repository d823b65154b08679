"""A rebuild by the store's own dispatcher, record by record.

It is used when the log is damaged, when a split began with bytes that only look like a record, and when queue offsets
are not consecutive (RocketMQ then appends entries at the queue's end, so an entry's place depends on all before it).
The result is the same as opening the store without its queues.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintlog.derive.parallel_scan import Batch
from flintlog.disk.media.medium import Medium
from flintlog.format.names import FAR
from flintlog.format.record import parse_record
from flintlog.kernel import Scan
from flintlog.pipeline.building.rebuild_build import load_bitmaps
from flintlog.pipeline.building.rebuild_scan import BuildPlan
from flintlog.store.components import Components, make_components, scan_threads
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.queues.deleted_queues import load_deleted
from flintlog.store.recovery.log_recovery import LogRecovery

BitmapHook = Callable[[bytes], "bytes | None"]


def rebuild_serially(
    paths: StorePaths,
    config: StoreConfig,
    plan: BuildPlan,
    medium: Medium,
    cut_at: int | None,
    limit: int | None = None,
) -> tuple[int, list[str]]:
    """Build everything into the staged directory; returns where the log ends, and the findings.

    `cut_at` is where Java's recovery cut the log, `limit` how far a ledger has committed it.
    """
    staged = Path(plan.staged)
    placed = config.with_changes(
        store_path_commit_log=",".join(map(str, paths.commit_logs)),
        read_only_commit_log_store_paths=",".join(map(str, paths.read_only_commit_logs)) or None,
        enable_dledger_commit_log=False,  # its data files are read where they are, and nothing is staged of it
        topic_queue_types=dict(plan.topic_queue_types),
    )
    parts = make_components(staged, placed, medium, lambda: 0)
    parts.segments.load()
    # The queues are built beside their store, which knows the topics that were deleted.
    parts.queues.deleted = load_deleted(paths.deleted, medium)
    dispatcher = Dispatcher(
        parts.commit_log,
        parts.queues,
        parts.index,
        parts.fast_dispatch,
        readable_end=lambda: parts.segments.max_offset,
        damage=parts.damage,
        delay_levels_ms=config.delay_levels_ms,
        extension=config.enable_consume_queue_ext,
    )
    if plan.extension_bytes is not None:
        dispatcher.entries.bitmap_hook = _kept_bitmaps(plan, paths.root, medium)
    start = max(0, parts.segments.min_offset)
    dispatcher.start_at(start)
    return _run(parts, dispatcher, config, start, cut_at, limit)


def _run(
    parts: Components, dispatcher: Dispatcher, config: StoreConfig, start: int, cut_at: int | None, limit: int | None
) -> tuple[int, list[str]]:
    def consume(batch: Batch, scan: Scan) -> None:
        dispatcher.apply(batch.view, batch.base, scan)

    reading = LogRecovery(
        parts.segments,
        damage=parts.damage,
        consume=consume,
        threads=scan_threads(),
        delay_levels_ms=config.delay_levels_ms,
        expected_end=FAR,
        cut_at=cut_at,
        limit=limit,
    )
    try:
        end = reading.run(start)
        parts.queues.truncate(end)
        parts.queues.sync.flush_all()
    finally:
        dispatcher.stop()
    parts.queues.shut_down()
    if parts.index is not None:
        parts.index.shut_down()
    parts.segments.shut_down()
    return end, [f"{found.evidence} (at {found.physical_offset})" for found in reading.findings]


def _kept_bitmaps(plan: BuildPlan, store: Path, medium: Medium) -> BitmapHook:
    known: dict[tuple[str, int], dict[int, bytes]] = {}

    def bitmap_of(data: bytes) -> bytes | None:
        record = parse_record(data)
        key = record.topic, record.queue_id
        if key not in known:
            known[key] = dict(load_bitmaps(plan, store, key, medium))
        return known[key].get(record.physical_offset)

    return bitmap_of
