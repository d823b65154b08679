"""A stored message as a row: the field names of `StoredMessage`, the body in the requested form."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING

from flintlog.cli.output import Output, TableOutput
from flintlog.errors import FlintlogError
from flintlog.format.java import decode_text, is_text
from flintlog.format.record import parse_record

if TYPE_CHECKING:
    from flintlog.store.model.stored_message import StoredMessage

FIELDS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "tags", "keys", "uniq_key"),
    *("tags_code", "body", "body_form", "body_crc", "properties", "flag", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "magic"),
)
BODY_FORMS = ("none", "text", "hex", "base64")
_LOOKED_AT = 64
SHOWN_BYTES = 16
"""So much is shown to people of a body that is no text."""
NO_TEXT = "no_text"
"""The topic and the properties that are not UTF-8, by name, their bytes in base64. Most rows have no such field."""


def to_row(message: StoredMessage, body: str = "text", *, is_for_people: bool = False) -> dict[str, object]:
    """Every field of a message. The text form is of the decompressed body, the other forms are of the stored bytes.

    `body_form` names the form of the body. If text was requested and the body is not UTF-8, it is base64, so that no
    byte is lost. People get its length and its begin in hexadecimal.
    """
    row: dict[str, object] = {name: getattr(message, name) for name in FIELDS if name not in ("body", "body_form")}
    if is_for_people and body == "text":
        row["body"] = _text(message)
    elif body != "none":
        row["body"], row["body_form"] = _body(message, body)
    no_text = {} if is_for_people else _no_text(message)
    return {name: row[name] for name in FIELDS if name in row} | ({NO_TEXT: no_text} if no_text else {})


def body_fields(output: Output) -> tuple[str, ...]:
    """The columns of a body: programs need to know its form."""
    return ("body",) if isinstance(output, TableOutput) else ("body", "body_form")


def _no_text(message: StoredMessage) -> dict[str, str]:
    """The fields that a row shows with U+FFFD for bytes that are no text, in base64."""
    shown = [message.topic, *message.properties, *message.properties.values()]
    if not any("\ufffd" in text for text in shown):
        return {}
    record = parse_record(message.record)
    fields = {"topic": record.topic_bytes, "properties": record.properties}
    return {name: base64.b64encode(data).decode("ascii") for name, data in fields.items() if not is_text(data)}


def _body(message: StoredMessage, form: str) -> tuple[str, str]:
    if form == "text":
        with suppress(FlintlogError, UnicodeDecodeError):
            return message.plain_body().decode(), "text"
        form = "base64"  # not UTF-8, or its codec is not installed, or it is flagged as compressed but is not
    return (message.body.hex() if form == "hex" else base64.b64encode(message.body).decode("ascii")), form


def _text(message: StoredMessage) -> str:
    try:
        body = message.plain_body()
    except FlintlogError:
        body = message.body
    text = decode_text(body)
    begin = text[:_LOOKED_AT]
    if sum(char == "\ufffd" or not (char.isprintable() or char.isspace()) for char in begin) <= len(begin) // 8:
        return text
    rest = "" if len(body) <= SHOWN_BYTES else " …"
    return f"{len(body)} bytes that are no text: {body[:SHOWN_BYTES].hex(' ', 4)}{rest}"
