"""Offsets that only the queue files of a closed store know: noted before Spark replaces them.

A log that lost its end lacks records that its queues have entries for. Queues that are built from such a log end
earlier. So the next offset of each queue whose last record the log lacks is written into `flintlog/deleted.json` before
the files are replaced (`deleted_queues.py`).
"""

from __future__ import annotations

from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.store.components import load_queue_types, make_components
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.queues.deleted_queues import FOR_EVER, DeletedQueue, load_deleted


def note_given_offsets(paths: StorePaths, config: StoreConfig, medium: Medium, log_end: int) -> None:
    """Note the offsets that were given to records after the log's end. The caller holds the store's lock."""
    parts = make_components(paths.root, config, OverlayMedium(medium), lambda: 0)
    parts.segments.load()
    queues = parts.queues
    queues.set_types({**load_queue_types(paths, medium), **config.topic_queue_types})
    queues.load()
    note = queues.covered.note
    queues.recall([] if note is None else note.queues)
    queues.find_ends(was_clean=False, commit_log_min=max(0, parts.segments.min_offset))
    lost = [claim for claim in queues.recalled if claim.log_end > log_end]
    load_deleted(paths.deleted, medium).add(
        DeletedQueue(claim.topic, claim.queue_id, claim.next_offset, FOR_EVER) for claim in lost
    )
