"""`flintlog info`: a store on one screen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import look, output_option, store_argument, store_config_option
from flintlog.cli.times import format_ms

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.options.store_config import StoreConfig


@click.command()
@store_argument
@store_config_option
@output_option
def info(store: Path, config: StoreConfig | None, output: Output) -> None:
    """Show the store in STORE: files, sizes, offsets, topics, time span, clean or not."""
    files = look(store, config, output)
    record = describe(files)
    if isinstance(output, TableOutput):
        for name in ("first_store_timestamp", "last_store_timestamp"):
            record[name] = format_ms(record[name])
        for part in ("files", "bytes"):
            record[part] = ", ".join(f"{kind} {count:,}" for kind, count in dict(record[part]).items())  # type: ignore[call-overload]
        if not record["findings_at_first_sight"]:
            del record[
                "findings_at_first_sight"
            ]  # only names and lengths were checked, so an empty list proves nothing
    output.record(record)


def describe(files: StoreFiles) -> dict[str, object]:
    """What `info` shows."""
    from flintlog.maintenance.inspect.overview import all_files, log_end, queues

    end, first, last = log_end(files)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for _, kind, size, _ in all_files(files):
        counts[kind] += 1
        sizes[kind] += size
    listed = list(queues(files))
    return {
        "path": str(files.root),
        "is_clean": files.is_clean and not files.is_running,
        "is_running": files.is_running,
        "min_offset": files.log[0].base if files.log else 0,
        "max_offset": end,
        "topics": len({queue.topic for queue in listed}),
        "queues": len(listed),
        "messages": sum(queue.messages for queue in listed),
        "first_store_timestamp": first,
        "last_store_timestamp": last,
        "files": dict(sorted(counts.items())),
        "bytes": dict(sorted(sizes.items())),
        "findings_at_first_sight": [finding.id for finding in files.findings],
        "inferred": {name: value for name, value in files.inferred.values.items() if not isinstance(value, dict)},
    }
