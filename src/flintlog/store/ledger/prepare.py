"""What a directory must fulfil before its log becomes a ledger, and how a plain log before it is closed."""

from __future__ import annotations

from flintlog.derive.log_end import records_end
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import InvalidConfig
from flintlog.format.record import END_RESERVE, encode_blank
from flintlog.store.log.segment_bytes import held
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths


def prepare_ledger(segments: SegmentQueue, paths: StorePaths, config: StoreConfig) -> None:
    """Before a ledger is opened to be written: what it cannot do is refused, and a plain log before it is closed."""
    if config.enabled_append_prop_crc:
        raise InvalidConfig("a store whose log is a ledger runs without enabled_append_prop_crc", path=paths.root)
    if config.dispatch == "external":
        raise InvalidConfig("a store whose log is a ledger dispatches itself", path=paths.root)
    own = [segment for segment in segments.segments if segment.path.parent in paths.commit_logs]
    if not own:
        _close_plain_log(segments)


def _close_plain_log(segments: SegmentQueue) -> None:
    """Fill the last file of a plain log up with a blank: the ledger begins with the next."""
    while (last := segments.last) is not None:
        with held(last) as view:
            end = records_end(view, last.base, last.base)
        if end > last.base or len(segments.segments) == 1:
            break
        segments.drop_from(last.base)  # made ahead, and never used
    if last is None or end == last.end:
        return
    last.set_positions(end - last.base)
    last.clear_unwritten()
    if last.end - end >= END_RESERVE:
        last.append(encode_blank(last.end - end))
    last.sync()
    last.set_positions(last.size)
