"""`flintlog ls`: topics, queues, groups or files of a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import look, note_offsets_damage, output_option, store_argument, store_config_option
from flintlog.cli.times import format_ms

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.options.store_config import StoreConfig

_COLUMNS = {
    "topics": ("topic", "queues", "messages", "bytes", "groups", "lag"),
    "queues": ("topic", "queue_id", "type", "min_offset", "max_offset", "messages", "bytes"),
    "groups": ("group", "topic", "queue_id", "offset", "max_offset", "lag"),
    "files": ("path", "kind", "bytes", "modified_ms"),
}


@click.command()
@click.argument("what", type=click.Choice(list(_COLUMNS)))
@store_argument
@store_config_option
@output_option
def ls(what: str, store: Path, config: StoreConfig | None, output: Output) -> int:
    """List the topics, queues, groups or files of the store in STORE.

    Bytes of a topic or queue are those that its messages take in the log; lag is how many messages a group has not
    consumed yet.
    """
    files = look(store, config, output)
    listing = {"topics": _topics, "queues": _queues, "groups": _groups, "files": _files}[what]
    rows = listing(files)
    if isinstance(output, TableOutput):
        rows = ({**row, "modified": format_ms(row.get("modified_ms"))} for row in rows)
        output.rows(rows, [column.removesuffix("_ms") for column in _COLUMNS[what]])
    else:
        output.rows(rows, _COLUMNS[what])
    return note_offsets_damage(files, output) if what in ("topics", "groups") else ExitCode.FINE


def _queues(files: StoreFiles) -> Iterator[dict[str, object]]:
    from flintlog.maintenance.inspect.overview import queues

    return (asdict(queue) for queue in queues(files))


def _groups(files: StoreFiles) -> Iterator[dict[str, object]]:
    from flintlog.maintenance.inspect.overview import groups

    return (asdict(group) for group in groups(files))


def _topics(files: StoreFiles) -> Iterator[dict[str, object]]:
    from flintlog.maintenance.inspect.overview import groups, queues

    listed, offsets = list(queues(files)), list(groups(files))
    for topic in sorted({queue.topic for queue in listed}):
        own = [queue for queue in listed if queue.topic == topic]
        followed = [offset for offset in offsets if offset.topic == topic]
        yield {
            "topic": topic,
            "queues": len(own),
            "messages": sum(queue.messages for queue in own),
            "bytes": sum(queue.bytes for queue in own),
            "groups": len({offset.group for offset in followed}),
            "lag": sum(offset.lag for offset in followed),
        }


def _files(files: StoreFiles) -> Iterator[dict[str, object]]:
    from flintlog.maintenance.inspect.overview import all_files

    for path, kind, size, modified_ms in all_files(files):
        yield {"path": str(path), "kind": kind, "bytes": size, "modified_ms": modified_ms}
