"""`consume`, `export` and `import`: move a few messages out of a store and into another, by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.messages import BODY_FORMS, body_fields, to_row
from flintlog.cli.names import GROUP, TOPIC
from flintlog.cli.output import JsonLinesOutput, Output, TableOutput
from flintlog.cli.parameters import (
    LocalFile,
    LocalPath,
    Seconds,
    open_for_writing,
    output_option,
    progress_option,
    store_argument,
    store_config_option,
)
from flintlog.cli.times import parse_ms
from flintlog.errors import InvalidOffset

if TYPE_CHECKING:
    from flintlog.cli.progress import Progress
    from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.options.store_config import StoreConfig

_LINES_A_LOOK = 1000


@click.command()
@store_argument
@click.option("--group", required=True, type=GROUP, help="The group; what it has consumed is kept.")
@click.option("--topic", required=True, type=TOPIC, help="The topic.")
@click.option("--filter", "expression", help="Only messages with one of these tags: 'paid || shipped'.")
@click.option("--limit", type=click.IntRange(1), help="At most so many messages; all that are there by default.")
@click.option("--start", default="earliest", show_default=True, help="Where a new group begins: earliest or latest.")
@click.option(
    "--wait", "wait_s", type=Seconds(0), default=0.0, show_default=True, help="Seconds to wait for the next one."
)
@click.option("--body", type=click.Choice(BODY_FORMS), default="text", show_default=True, help="Form of bodies.")
@store_config_option
@output_option
def consume(
    store: Path,
    group: str,
    topic: str,
    expression: str | None,
    limit: int | None,
    start: str,
    wait_s: float,
    body: str,
    config: StoreConfig | None,
    output: Output,
) -> None:
    """Read a topic of the store in STORE for a group; each message is acknowledged once it is written out."""
    _require_topic(store, config, topic)
    with open_for_writing(store, config, output) as opened:
        consumer = opened.consumer(group, topic, filter=expression, start=start, timeout_s=wait_s)

        def rows() -> Iterator[dict[str, object]]:
            for count, message in enumerate(consumer, 1):
                yield to_row(message, body, is_for_people=isinstance(output, TableOutput))
                consumer.acknowledge(message)
                if count == limit:
                    return

        columns = ("topic", "queue_id", "queue_offset", "tags", "keys")
        output.rows(rows(), columns if body == "none" else (*columns, *body_fields(output)))


def _require_topic(store: Path, config: StoreConfig | None, topic: str) -> None:
    """Refuse an unknown topic before the store is opened: opening a consumer would record offsets for it."""
    from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
    from flintlog.maintenance.inspect.store_files import look_at

    files = look_at(store, config)
    if topic in (files.known_topics or ()) or any(topic == known for known, _ in files.queues):
        return
    if next(LogReader(files).messages(Wanted(topic)), None) is None:  # the topic's queues may be missing
        raise InvalidOffset(f"there is no topic {topic}", path=store, advice="`flintlog ls topics` lists them")


@click.command("export")
@store_argument
@click.argument("file", type=LocalPath(dir_okay=False, allow_dash=True), default="-")
@click.option("--topic", type=TOPIC, help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only messages of this queue id.")
@click.option("--from", "from_ms", type=parse_ms, metavar="TIME", help="Stored at or after this time.")
@click.option("--until", "until_ms", type=parse_ms, metavar="TIME", help="Stored before this time.")
@store_config_option
@progress_option
@output_option
def export(
    store: Path,
    file: str,
    topic: str | None,
    queue_id: int | None,
    from_ms: int | None,
    until_ms: int | None,
    config: StoreConfig | None,
    output: Output,
) -> int:
    """Write messages of the store in STORE as JSON lines, bodies in base64, for `flintlog import`.

    They are written to FILE, or to standard output. With FILE, their number is printed. FILE appears when it is whole.
    An export that was interrupted and is run again goes on after the last message that it has written.
    """
    from flintlog.cli.mend.exporting import part_of, whole_file
    from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
    from flintlog.maintenance.inspect.store_files import look_at
    from flintlog.store.log.batch_markers import MARKER_TOPIC

    damage: list[tuple[int, int, str]] = []
    files = look_at(store, config)
    reader = LogReader(files, lambda *place: damage.append(place))
    # A marker closes a batch in this store; it is no message.
    wanted = Wanted(topic, queue_id, from_ms, until_ms, but_topic=MARKER_TOPIC if topic is None else None)
    if file == "-":
        with output.progress("export", "standard output has only a part; run it again") as progress:
            JsonLinesOutput(sys.stdout).encoded_rows(_lines(files, reader, wanted, progress))
    else:
        goes_on = f"{part_of(Path(file), store, wanted)} has them; run it again, and it goes on there"
        with output.progress("export", goes_on) as progress, whole_file(Path(file), store, wanted, reader) as part:
            if part.start is not None:
                output.note(f"goes on after {part.count} messages that were exported before")
                reader.look_for_damage(part.start)
            part.write(_lines(files, reader, replace(wanted, start=part.start), progress))
            count = part.count
        output.record({"messages": count})
    for begin, end, evidence in damage:
        output.note(f"passed over {end - begin} bytes at {begin}: {evidence}")
    return ExitCode.PARTIAL if damage else ExitCode.FINE


def _lines(files: StoreFiles, reader: LogReader, wanted: Wanted, progress: Progress) -> Iterator[str]:
    from flintlog.cli.mend.exporting import FORM
    from flintlog.cli.message_lines import MessageLines
    from flintlog.maintenance.inspect.overview import log_end

    first, end = files.min_offset, log_end(files)[0]
    for count, line in enumerate(MessageLines(reader, FORM).lines(wanted)):
        if not count % _LINES_A_LOOK:
            progress(reader.position - first, end - first)
        yield line
    progress(end - first, end - first)


@click.command("import")
@click.argument("store", type=LocalPath(file_okay=False, path_type=Path), metavar="STORE")
@click.argument("file", type=LocalFile("r", encoding="utf-8"), default="-")
@click.option("--topic", type=TOPIC, help="Put all of them under this topic.")
@click.option("--create", is_flag=True, help="Make the store if there is none.")
@click.option("--again", is_flag=True, help="Put them even if the same lines were imported before.")
@store_config_option
@progress_option
@output_option
def import_(
    store: Path, file: IO[str], topic: str | None, create: bool, again: bool, config: StoreConfig | None, output: Output
) -> None:
    """Put messages that `flintlog export` wrote into the store in STORE; they get new offsets and store times.

    All of them are put, or none: every line is checked before. A rerun with the same lines puts nothing.
    """
    from flintlog.cli.mend.importing import ImportedLines, put_lines

    goes_on = "all of them were put or none; run it again: without --again, it puts nothing twice"
    with output.progress("import", goes_on) as progress:
        lines = ImportedLines(file, topic, progress)
        count, name = lines.check()
        with open_for_writing(store, config, output, create) as opened:
            put = put_lines(opened, lines, None if again else f"import-{name}") if count else 0
    output.record({"messages": put, "skipped": count - put})
    if put < count:
        output.note("these lines were imported before, and nothing was put; --again puts them once more")
