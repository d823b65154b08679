"""Lowers the offsets of `config/delayOffset.json` to the ends of the queues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.disk.media.medium import Medium
from flintlog.format import names
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.maintenance.inspect.queue_ends import queue_end
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.store.settings.json_file import JsonFile

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig


def bring_delay_offsets_back(root: Path, config: StoreConfig | None, medium: Medium) -> None:
    """Lower every delay level that is ahead of its queue: messages put there later would be skipped."""
    files = look_at(root, config, medium)
    file = JsonFile(root / names.CONFIG / "delayOffset.json", medium)
    content = file.load()
    table = None if content is None else content.get("offsetTable")
    if content is None or not isinstance(table, dict):
        return
    for level, offset in table.items():
        queue = files.queues.get((SCHEDULE_TOPIC, int(level) - 1)) if str(level).isdecimal() else None
        end = 0 if queue is None else queue_end(files, queue)
        if isinstance(offset, int) and offset > end:
            table[level] = end
    file.save(content)
