"""`flintlog stats STORE`: what can be told of a store by looking at it, written to by another process or by none.

Without `--by` one record: RocketMQ's names where it has one. Rates and latencies are in the memory of the process that
runs the store (`store.stats()`, Prometheus); the log tells how many messages and bytes there are, and of when.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, Row
from flintlog.cli.parameters import look, output_option, store_argument, store_config_option

if TYPE_CHECKING:
    from flintlog.store.config import StoreConfig
    from flintlog.store.store import Store

_LIVING = ("commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset")
_COUNTED = ("messages", "bytes", "average_size", "earliest_store_timestamp", "latest_store_timestamp", "tps")


@click.command()
@store_argument
@click.option("--by", type=click.Choice(["topic", "queue"]), help="A row for each topic or queue, read from the log.")
@store_config_option
@output_option
def stats(store: Path, by: str | None, config: StoreConfig | None, output: Output) -> int:
    """Show figures of the store in directory STORE."""
    from flintlog.store.store import open_store

    chosen = look(store, None, output).config if config is None else config
    with open_store(store, chosen, read_only=True) as opened:
        if by is None:
            output.record(figures_of(opened))
        else:
            names = ("topic",) if by == "topic" else ("topic", "queue_id")
            output.rows(rows_of(opened, names), [*names, *_COUNTED])
    return ExitCode.FINE


def figures_of(store: Store) -> Row:
    """The store as a whole; none of it needs the log to be read through."""
    told = store.stats()
    queues = store.queues()
    return {
        "topics": len({queue.topic for queue in queues}),
        "queues": len(queues),
        "messages": sum(queue.max_offset - queue.min_offset for queue in queues),
        "bytes": store.max_physical_offset - store.min_physical_offset,
        **{name: value for name, value in told.items() if name.startswith(_LIVING)},
        "findings": len(store.recovery.findings),
    }


def rows_of(store: Store, names: tuple[str, ...]) -> Iterator[Row]:
    """Messages, bytes and times of each topic or queue, as far as the log has them."""
    import pyarrow as pa

    columns = [*names, "size", "store_timestamp"]
    batches = [batch.select(columns) for batch in store.scan(include_body=False)]
    if not batches:
        return
    grouped = pa.Table.from_batches(batches).group_by(list(names))
    asked = [("size", "count"), ("size", "sum"), ("store_timestamp", "min"), ("store_timestamp", "max")]
    table = grouped.aggregate(asked).sort_by([(name, "ascending") for name in names])
    for found in table.to_pylist():
        count, size = found["size_count"], found["size_sum"]
        first, last = found["store_timestamp_min"], found["store_timestamp_max"]
        row = {name: found[name] for name in names}
        rate = (count - 1) * 1000 / (last - first) if last > first else None
        yield {**row, **dict(zip(_COUNTED, (count, size, size / count, first, last, rate), strict=True))}
