"""`flintlog cat` and `flintlog tail`: messages in log order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.messages import BODY_FORMS, FIELDS, to_row
from flintlog.cli.names import TOPIC
from flintlog.cli.output import JsonLinesOutput, JsonOutput, Output, TableOutput, is_unicode
from flintlog.cli.parameters import look, output_option, store_argument, store_config_option
from flintlog.cli.times import format_ms, parse_ms

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.log_reader import Wanted
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.model.stored_message import StoredMessage
    from flintlog.store.options.store_config import StoreConfig

TABLE_LIMIT = 100
POLL_S = 0.2

Matches = Callable[["StoredMessage"], bool]
Item = TypeVar("Item")


class Choice(NamedTuple):
    """Which messages were asked for, and the form of their bodies."""

    wanted: Wanted
    matches: Matches | None
    """None when all that are wanted match."""
    body: str

    def matching(self, messages: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
        matches = self.matches
        return iter(messages) if matches is None else (message for message in messages if matches(message))


def _choice_options(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """The options that select messages, as one argument `choice`."""

    @wraps(command)
    def with_choice(
        topic: str | None,
        queue_id: int | None,
        start: str | None,
        stop: str | None,
        tag: str | None,
        key: str | None,
        where: str | None,
        body: str,
        **others: object,
    ) -> int | None:
        choice = Choice(_wanted(topic, queue_id, start, stop), _matcher(tag, key, where), body)
        return command(choice=choice, **others)

    options = (
        click.option("--topic", type=TOPIC, help="Only messages of this topic."),
        click.option("--queue", "queue_id", type=click.IntRange(0), help="Only messages of this queue id."),
        click.option("--from", "start", help="Stored at or after this time, or @OFFSET for a physical offset."),
        click.option("--until", "stop", help="Stored before this time, or @OFFSET for a physical offset."),
        click.option("--tag", help="Only messages with one of these tags: 'paid || shipped'."),
        click.option("--key", help="Only messages with this key, or this unique key."),
        click.option("--where", help="Only messages whose properties fulfil an SQL condition: \"region = 'eu'\"."),
        click.option(
            "--body", type=click.Choice(BODY_FORMS), default="text", show_default=True, help="Form of bodies."
        ),
    )
    decorated: Callable[..., int | None] = with_choice
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@click.command()
@store_argument
@_choice_options
@click.option("--limit", type=click.IntRange(0), help=f"At most so many messages; {TABLE_LIMIT} for a table.")
@store_config_option
@output_option
def cat(store: Path, choice: Choice, limit: int | None, config: StoreConfig | None, output: Output) -> int:
    """Show the messages of the store in STORE, in log order."""
    from flintlog.cli.message_lines import MessageLines
    from flintlog.maintenance.inspect.log_reader import LogReader

    damage: list[tuple[int, int, str]] = []
    reader = LogReader(look(store, config, output), lambda *place: damage.append(place))
    limit = TABLE_LIMIT if limit is None and isinstance(output, TableOutput) else limit
    cut: _Cut[str] | _Cut[StoredMessage]
    if choice.matches is None and isinstance(output, (JsonOutput, JsonLinesOutput)) and is_unicode(output.stream):
        cut = _Cut(MessageLines(reader, choice.body).lines(choice.wanted), limit)
        output.encoded_rows(cut)
    else:
        cut = _Cut(choice.matching(reader.messages(choice.wanted)), limit)
        _write(cut, choice.body, output)
    if cut.is_cut:
        output.cut(cut.count, "messages", "--limit shows more")
    for place in damage:
        _note_damage(*place, output)
    return ExitCode.PARTIAL if damage else ExitCode.FINE


@click.command()
@store_argument
@_choice_options
@click.option("-n", "--count", type=click.IntRange(0), default=10, show_default=True, help="How many messages.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until interrupted.")
@store_config_option
@output_option
def tail(store: Path, choice: Choice, count: int, follow: bool, config: StoreConfig | None, output: Output) -> None:
    """Show the last messages of the store in STORE, and with -f those that are put from now on."""
    if follow and isinstance(output, JsonOutput):
        raise click.UsageError("-f has no end, and a JSON array needs one; use -o jsonl")
    files = look(store, config, output)
    if not follow:
        _write(_last(files, count, choice), choice.body, output)
        return
    end = files.fix_end()
    _write_lines(chain(_last(files, count, choice), _follow(store, config, end, choice, output)), choice.body, output)


def _note_damage(begin: int, end: int, evidence: str, output: Output) -> None:
    output.note(f"passed over {end - begin} bytes at {begin}: {evidence}; `flintlog verify` says more")


def _wanted(topic: str | None, queue_id: int | None, start: str | None, stop: str | None) -> Wanted:
    from flintlog.maintenance.inspect.log_reader import Wanted

    start_at, from_ms = _place(start)
    stop_at, until_ms = _place(stop)
    return Wanted(topic, queue_id, from_ms, until_ms, start_at, stop_at)


def _place(text: str | None) -> tuple[int | None, int | None]:
    """A physical offset (@4096), or a time in ms."""
    if text is None:
        return None, None
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:]), None
    return None, parse_ms(text)


def _matcher(tag: str | None, key: str | None, where: str | None) -> Matches | None:
    if tag is None and key is None and where is None:
        return None
    from flintlog.store.filters.sql92 import Sql92
    from flintlog.store.filters.tags import TagFilter

    tags = None if tag is None else TagFilter(tag)
    condition = None if where is None else Sql92(where, strict=True)

    def matches(message: StoredMessage) -> bool:
        if tags is not None and not tags.matches_message(message):
            return False
        if key is not None and key not in message.keys and key != message.uniq_key:
            return False
        return condition is None or condition.evaluate(message.properties) is True

    return matches


class _Cut(Generic[Item]):
    """At most so many messages, and whether there were more."""

    def __init__(self, messages: Iterator[Item], limit: int | None) -> None:
        self._messages = messages
        self._limit = limit
        self.count = 0
        self.is_cut = False

    def __iter__(self) -> Iterator[Item]:
        for message in islice(self._messages, self._limit if self._limit is None else min(self._limit, sys.maxsize)):
            self.count += 1
            yield message
        if self._limit is not None and self.count == self._limit:
            self.is_cut = next(self._messages, None) is not None


def _write(messages: Iterable[StoredMessage], body: str, output: Output) -> None:
    if isinstance(output, TableOutput):
        first = next(found := iter(messages), None)
        if first is None:
            output.note("nothing to show")
        else:
            output.blocks(_block(message, body, output) for message in chain([first], found))
    else:
        columns = [name for name in FIELDS if name not in ("body", "body_form") or body != "none"]
        output.rows((to_row(message, body) for message in messages), columns)


def _block(message: StoredMessage, body: str, output: TableOutput) -> tuple[str, Sequence[str]]:
    """A message for people: a line that says what and where it is; below it keys and the begin of its body."""
    row = to_row(message, body, is_for_people=True)
    queue = f"{row['topic']}/{row['queue_id']}@{row['queue_offset']}"
    line = f"{format_ms(message.store_timestamp)}  {message.physical_offset:>8}  {queue}"
    line += "" if message.tags is None else f"  {message.tags}"
    about = [f"{message.size} bytes", *([f"keys {', '.join(message.keys)}"] if message.keys else [])]
    details = [", ".join(about), *([str(row["body"])] if row.get("body") else [])]
    return line, [output.shortened(detail) for detail in details]


def _write_lines(messages: Iterable[StoredMessage], body: str, output: Output) -> None:
    """Write each message as soon as it is there."""
    for message in messages:
        if isinstance(output, TableOutput):
            output.blocks([_block(message, body, output)])
        else:
            row = to_row(message, body)
            output.rows([row], list(row))
        output.stream.flush()


def _last(files: StoreFiles, count: int, choice: Choice) -> list[StoredMessage]:
    """The last messages that match, oldest first."""
    from flintlog.maintenance.inspect.log_reader import LogReader

    reader = LogReader(files)
    found: list[StoredMessage] = []
    for file in reversed(reader.files):
        if len(found) >= count:
            break
        own = list(choice.matching(reader.read_file(file, choice.wanted)))
        found = (own + found)[-count:]
    return found


def _follow(
    store: Path, config: StoreConfig | None, position: int, choice: Choice, output: Output
) -> Iterator[StoredMessage]:
    """The messages from a physical offset on, each as soon as it is published."""
    from flintlog.maintenance.inspect.log_reader import LogReader
    from flintlog.maintenance.inspect.store_files import look_at

    while True:
        files = look_at(store, config)
        files.fix_end(position)
        reader = LogReader(files, lambda begin, end, why: _note_damage(begin, end, why, output))
        reader.position = position
        yield from choice.matching(reader.more(choice.wanted))
        position = reader.position
        time.sleep(POLL_S)
