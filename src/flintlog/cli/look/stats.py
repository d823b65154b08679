"""`flintlog stats STORE`: figures of a store from its files, whether another process writes it or not.

Without `--by` it prints one record, with RocketMQ's names where it has them. The number, bytes and times of messages
come from the log, and what each group has not consumed from its offsets. Rates, latencies and counts of reads are not
in the files: only the process that runs the store has them (`store.stats()`, `store.broker_stats`, Prometheus).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, Row, TableOutput
from flintlog.cli.parameters import look, note_offsets_damage, output_option, store_argument, store_config_option
from flintlog.cli.times import format_ms
from flintlog.errors import DamagedStore

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig
    from flintlog.store.store import Store

_LIVING = ("commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset")
WAITING = ("group", "topic", "queues", "waiting", "behind_bytes", "oldest_waiting_timestamp")
COUNTED = ("messages", "bytes", "average_size", "earliest_store_timestamp", "latest_store_timestamp", "tps")


@click.command()
@store_argument
@click.option(
    "--by",
    type=click.Choice(["topic", "queue", "group"]),
    help="A row for each topic or queue, read from the log, or for what waits for each group.",
)
@store_config_option
@output_option
def stats(store: Path, by: str | None, config: StoreConfig | None, output: Output) -> int:
    """Show figures of the store in directory STORE.

    Of a store that is too damaged to be opened they are read from its files, as far as these go.
    """
    from flintlog.store.open_store import open_store

    files = look(store, config, output)
    try:
        opening = open_store(store, config or files.config, read_only=True)
    except DamagedStore as error:
        from flintlog.cli.look.stats_of_files import show_stats_of_files

        output.note(f"the store cannot be opened, and this is what its files say: {error.what} [{error.path}]")
        show_stats_of_files(files, by, output)
        return ExitCode.PARTIAL
    with opening as opened:
        if by is None:
            output.record(figures_of(opened))
        elif by == "group":
            output.rows(shown(waiting_of(opened), output), WAITING)
        else:
            names = ("topic",) if by == "topic" else ("topic", "queue_id")
            output.rows(shown(rows_of(opened, names), output), [*names, *COUNTED])
    return note_offsets_damage(files, output) if by == "group" else ExitCode.FINE


def shown(rows: Iterator[Row], output: Output) -> Iterator[Row]:
    """For people, times as text."""
    if not isinstance(output, TableOutput):
        yield from rows
        return
    for row in rows:
        yield {name: format_ms(value) if name.endswith("_timestamp") else value for name, value in row.items()}


def figures_of(store: Store) -> Row:
    """The store as a whole, without reading the log through."""
    runtime = store.stats()
    queues = store.queues()
    return {
        "topics": len({queue.topic for queue in queues}),
        "queues": len(queues),
        "groups": len({group for _, group in store.consumer_offsets.pairs()}),
        "messages": sum(queue.max_offset - queue.min_offset for queue in queues),
        "bytes": store.max_physical_offset - store.min_physical_offset,
        **{name: value for name, value in runtime.items() if name.startswith(_LIVING)},
        "findings": len(store.recovery.findings),
    }


def waiting_of(store: Store) -> Iterator[Row]:
    """What each group has not consumed yet of each topic that it reads, whether its filter takes it or not."""
    for topic, group in sorted(store.consumer_offsets.pairs(), key=lambda pair: pair[::-1]):
        offsets = store.consumer_offsets.offsets(group, topic)
        places = {queue_id: max(offset, store.min_offset(topic, queue_id)) for queue_id, offset in offsets.items()}
        waiting = {queue_id: store.max_offset(topic, queue_id) - place for queue_id, place in places.items()}
        found = [
            message
            for queue_id, count in waiting.items()
            if count > 0
            for message in store.get(topic, queue_id, places[queue_id], max_count=1).messages
        ]
        yield {
            "group": group,
            "topic": topic,
            "queues": len(offsets),
            "waiting": sum(max(0, count) for count in waiting.values()),
            "behind_bytes": max((store.max_physical_offset - each.physical_offset for each in found), default=0),
            "oldest_waiting_timestamp": min((each.store_timestamp for each in found), default=None),
        }


def rows_of(store: Store, names: tuple[str, ...]) -> Iterator[Row]:
    """Messages, bytes and times of each topic or queue, as far as the log has them."""
    columns = [*names, "size", "store_timestamp"]
    batches = [batch.select(columns) for batch in store.scan(include_body=False)]
    if not batches:
        return
    import pyarrow as pa  # `scan` says which extra brings it

    grouped = pa.Table.from_batches(batches).group_by(list(names))
    asked = [("size", "count"), ("size", "sum"), ("store_timestamp", "min"), ("store_timestamp", "max")]
    table = grouped.aggregate(asked).sort_by([(name, "ascending") for name in names])
    for found in table.to_pylist():
        count, size = found["size_count"], found["size_sum"]
        first, last = found["store_timestamp_min"], found["store_timestamp_max"]
        row = {name: found[name] for name in names}
        rate = (count - 1) * 1000 / (last - first) if last > first else None
        yield {**row, **dict(zip(COUNTED, (count, size, size / count, first, last, rate), strict=True))}
