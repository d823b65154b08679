"""`flintlog get`: one message, and every place that refers to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.messages import BODY_FORMS, to_row
from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output, TableOutput, with_relative_file
from flintlog.cli.parameters import look, output_option, store_argument, store_config_option
from flintlog.cli.times import format_ms
from flintlog.errors import FormatError

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.log_reader import DamagedPlace, LogReader, Wanted
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.model.stored_message import StoredMessage
    from flintlog.store.options.store_config import StoreConfig

_COLUMNS = ("kind", "topic", "queue_id", "key", "group", "file", "offset", "slot", "entry", "is_right")


@click.command()
@store_argument
@click.option("--id", "message_id", help="Its message id, or its unique key.")
@click.option("--key", help="One of its keys; the newest message with it is shown.")
@click.option("--physical", type=click.IntRange(0), help="Its physical offset.")
@click.option("--topic", type=TOPIC, help="Its topic, with --queue and --offset; or the topic of a key.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Its queue id.")
@click.option("--offset", type=click.IntRange(0), help="Its queue offset.")
@click.option("--body", type=click.Choice(BODY_FORMS), default="text", show_default=True, help="Form of the body.")
@store_config_option
@output_option
def get(
    store: Path,
    message_id: str | None,
    key: str | None,
    physical: int | None,
    topic: str | None,
    queue_id: int | None,
    offset: int | None,
    body: str,
    config: StoreConfig | None,
    output: Output,
) -> int:
    """Show one message of the store in STORE, and every place that refers to it."""
    from flintlog.maintenance.inspect.references import references

    by_queue = topic is not None and queue_id is not None and offset is not None
    if (message_id is not None) + (key is not None) + (physical is not None) + by_queue != 1:
        raise click.UsageError("name one message: --id, --key, --physical, or --topic with --queue and --offset")
    files = look(store, config, output)
    finder = _Finder(files)
    if physical is not None:
        found = finder.at(physical)
    elif message_id is not None:
        found = finder.by_id(message_id)
    elif key is not None:
        found = finder.by_key(key, topic)
    else:
        found = finder.by_queue(str(topic), int(queue_id or 0), int(offset or 0))
    if not found and finder.damage:
        raise finder.damage[0].error
    if not found:
        is_by_index = key is not None and bool(files.index)
        where = " in the index; `flintlog cat --key` looks in the log itself" if is_by_index else ""
        output.note(f"there is no such message{where}")
        return ExitCode.CANNOT_READ
    places = [with_relative_file(place, store) for place in references(files, found[0])]
    _show(found[0], places, body, output)
    for damage in finder.damage:
        output.note(f"another message could not be read: {damage.error}")
    if len(found) > 1:
        others = ", ".join(str(message.physical_offset) for message in found[1:11])
        output.note(f"{len(found) - 1} more messages have this key, at {others}{' …' if len(found) > 11 else ''}")
    return ExitCode.FINE


def _show(message: StoredMessage, places: list[dict[str, object]], body: str, output: Output) -> None:
    row = to_row(message, body, is_for_people=isinstance(output, TableOutput))
    if isinstance(output, TableOutput):
        for name in ("born_timestamp", "store_timestamp"):
            row[name] = format_ms(row[name])
        output.record(row)
        output.rows(places, _COLUMNS, "referred to by")
    else:
        output.record({"message": row, "references": places})


class _Finder:
    """Finds messages, by key the newest first. `damage` lists damaged places where a wanted message should be."""

    def __init__(self, files: StoreFiles) -> None:
        from flintlog.maintenance.inspect.log_reader import LogReader

        self._files = files
        self._reader: LogReader = LogReader(files, lambda *place: self._passed_over.append(place))
        self._passed_over: list[tuple[int, int, str]] = []
        self.damage: list[DamagedPlace] = []

    def at(self, physical_offset: int, is_right: Callable[[StoredMessage], bool] | None = None) -> list[StoredMessage]:
        """The message at an offset, if it is the right one; damage counts unless its head can be read and is wrong."""
        message = self._reader.message_at(physical_offset)
        if message is not None:
            return [message] if is_right is None or is_right(message) else []
        damage = self._reader.damage_at(physical_offset)
        if damage is not None and (damage.message is None or is_right is None or is_right(damage.message)):
            self.damage.append(damage)
        return []

    def by_id(self, text: str) -> list[StoredMessage]:
        """By the offset in a message id; any other text is taken for a unique key."""
        from flintlog.format.message_id import parse_message_id

        try:
            _, physical_offset = parse_message_id(text)
        except FormatError:
            return self.by_key(text, None)
        found = self.at(physical_offset, lambda message: message.message_id == text.upper())
        return found or self.by_key(text, None)

    def by_key(self, key: str, topic: str | None) -> list[StoredMessage]:
        """Through the index; without one, through the whole log."""
        from flintlog.maintenance.inspect.log_reader import Wanted
        from flintlog.maintenance.inspect.references import find_by_key

        topics = sorted({queue[0] for queue in self._files.queues}) if topic is None else [topic]
        offsets = {offset for name in topics for offset in find_by_key(self._files, name, key)}

        def is_right(message: StoredMessage) -> bool:
            return _has_key(message, key) and topic in (None, message.topic)

        found = [message for offset in sorted(offsets, reverse=True) for message in self.at(offset, is_right)]
        return found if found or self._files.index else self._through_the_log(Wanted(topic), is_right)[::-1]

    def by_queue(self, topic: str, queue_id: int, offset: int) -> list[StoredMessage]:
        """Through the queue; if its entry does not lead to the message, through the log."""
        from flintlog.maintenance.inspect.log_reader import Wanted

        def is_right(message: StoredMessage) -> bool:
            return (message.topic, message.queue_id, message.queue_offset) == (topic, queue_id, offset)

        for physical_offset in self._entry(topic, queue_id, offset):
            found = self.at(physical_offset, lambda message: message.topic == topic)
            if found or self.damage:
                return found
        return self._through_the_log(Wanted(topic, queue_id), is_right)[-1:]

    def _through_the_log(self, wanted: Wanted, is_right: Callable[[StoredMessage], bool]) -> list[StoredMessage]:
        """All right messages in log order; in skipped bytes, `damage` gets those whose heads can be read."""
        self._passed_over.clear()
        found = [message for message in self._reader.messages(wanted) if is_right(message)]
        for start, stop, _ in self._passed_over:
            for message in self._reader.damaged_messages(start, stop):
                if is_right(message):
                    self.at(message.physical_offset)
        return found

    def _entry(self, topic: str, queue_id: int, offset: int) -> list[int]:
        from flintlog.format.queue_entry import ENTRY_SIZE, parse_queue_entry

        queue = self._files.queues.get((topic, queue_id))
        if queue is None or queue.is_batch:
            return []
        at = offset * ENTRY_SIZE
        pieces = queue.pieces(self._files.read, at, at + ENTRY_SIZE)
        return [entry.physical_offset for *_, view in pieces if (entry := parse_queue_entry(view)).is_valid]


def _has_key(message: StoredMessage, key: str) -> bool:
    return key in message.keys or key == message.uniq_key
