"""The figures of `flintlog stats` from the files of a store that cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintlog.cli.look.stats import COUNTED, WAITING, shown
from flintlog.cli.output import Output, Row

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles


def show_stats_of_files(files: StoreFiles, by: str | None, output: Output) -> None:
    """Show what `stats` shows, as far as it is known."""
    if by is None:
        output.record(_figures(files))
    elif by == "group":
        output.rows(shown(_waiting(files), output), WAITING)
    else:
        names = ("topic",) if by == "topic" else ("topic", "queue_id")
        output.rows(shown(_rows(files, names), output), [*names, *COUNTED])


def _figures(files: StoreFiles) -> Row:
    from flintlog.maintenance.inspect.overview import groups, log_end, queues

    listed = list(queues(files))
    end = log_end(files)[0] if files.log else files.min_offset
    return {
        "topics": len({queue.topic for queue in listed}),
        "queues": len(listed),
        "groups": len({offset.group for offset in groups(files)}),
        "messages": sum(queue.messages for queue in listed),
        "bytes": end - files.min_offset,
        "commitLogMinOffset": files.min_offset,
        "commitLogMaxOffset": end,
        "findings": len(files.findings),
    }


def _waiting(files: StoreFiles) -> Iterator[Row]:
    from flintlog.maintenance.inspect.overview import groups

    listed = list(groups(files))
    for group, topic in sorted({(each.group, each.topic) for each in listed}):
        own = [each for each in listed if (each.group, each.topic) == (group, topic)]
        known: dict[str, object] = {"group": group, "topic": topic, "queues": len(own)}
        yield dict.fromkeys(WAITING) | known | {"waiting": sum(each.lag for each in own)}


def _rows(files: StoreFiles, names: tuple[str, ...]) -> Iterator[Row]:
    from flintlog.maintenance.inspect.log_reader import LogReader

    found: dict[tuple[str, int], list[int]] = {}
    for message in LogReader(files).messages():
        key = (message.topic, message.queue_id if "queue_id" in names else 0)
        stored_ms = message.store_timestamp
        own = found.setdefault(key, [0, 0, stored_ms, stored_ms])
        own[:] = own[0] + 1, own[1] + message.size, min(own[2], stored_ms), max(own[3], stored_ms)
    for key, (count, size, first, last) in sorted(found.items()):
        rate = (count - 1) * 1000 / (last - first) if last > first else None
        row = dict(zip(names, key, strict=False))
        yield {**row, **dict(zip(COUNTED, (count, size, size / count, first, last, rate), strict=True))}
