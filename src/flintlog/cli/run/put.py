"""`flintlog put`: messages into a store, from the command line or a line each from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, open_for_writing, output_option, store_config_option, to_pairs

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_COLUMNS = ("status", "message_id", "physical_offset", "queue_offset", "size")


@click.command()
@click.argument("store", type=LocalPath(file_okay=False, path_type=Path), metavar="STORE")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@click.option("--topic", required=True, type=TOPIC, help="The topic.")
@click.option("--queue", "queue_id", type=click.IntRange(0), default=0, show_default=True, help="The queue id.")
@click.option("--tag", help="Its tag.")
@click.option("--key", "keys", multiple=True, help="A key; may be given more than once.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=to_pairs,
    help="A property; more than once too.",
)
@click.option("--lines", is_flag=True, help="Each line of standard input is a body.")
@click.option("--create", is_flag=True, help="Make the store if there is none.")
@store_config_option
@output_option
def put(
    store: Path,
    bodies: tuple[str, ...],
    topic: str,
    queue_id: int,
    tag: str | None,
    keys: tuple[str, ...],
    properties: dict[str, str],
    lines: bool,
    create: bool,
    config: StoreConfig | None,
    output: Output,
) -> int:
    """Put a message for each BODY, or each line, into the store in STORE; it must not be in use."""
    from flintlog.store.model.message import Message

    if bool(bodies) == lines:
        raise click.UsageError("give bodies, or --lines to read them from standard input")
    is_done = True

    def receipts() -> Iterator[dict[str, object]]:
        nonlocal is_done
        with open_for_writing(store, config, output, create) as opened:
            for body in _lines() if lines else map(str.encode, bodies):
                message = Message(topic, body, tags=tag, keys=keys, queue_id=queue_id, properties=properties or None)
                receipt = opened.put(message, check=False)
                is_done = is_done and bool(receipt)
                yield {name: getattr(receipt, name) for name in _COLUMNS[1:]} | {"status": receipt.status.name}

    output.rows(receipts(), _COLUMNS)
    return ExitCode.FINE if is_done else ExitCode.PARTIAL


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\r\n")
