"""A stored message as a row: the names of `StoredMessage`, the body in the form that was asked for."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING

from flintlog.cli.output import Output, TableOutput
from flintlog.errors import FlintlogError
from flintlog.format.java import decode_text

if TYPE_CHECKING:
    from flintlog.store.model.stored_message import StoredMessage

FIELDS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "tags", "keys", "uniq_key"),
    *("tags_code", "body", "body_form", "body_crc", "properties", "flag", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "magic"),
)
TABLE_FIELDS = (
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "tags",
    "keys",
    "size",
    "body",
)
BODY_FORMS = ("none", "text", "hex", "base64")


def to_row(message: StoredMessage, body: str = "text", *, is_for_people: bool = False) -> dict[str, object]:
    """Every field of a message; text is of the body as its producer had it, the other forms of the stored bytes.

    `body_form` says in which form the body is. One that is no UTF-8 becomes base64, where text was asked for: no byte
    is lost. In a table for people it stays text, with a sign for each byte that is none.
    """
    row: dict[str, object] = {name: getattr(message, name) for name in FIELDS if name not in ("body", "body_form")}
    if is_for_people and body == "text":
        row["body"] = _text(message)
    elif body != "none":
        row["body"], row["body_form"] = _body(message, body)
    return {name: row[name] for name in FIELDS if name in row}


def body_fields(output: Output) -> tuple[str, ...]:
    """The columns of a body: programs need to know its form."""
    return ("body",) if isinstance(output, TableOutput) else ("body", "body_form")


def _body(message: StoredMessage, form: str) -> tuple[str, str]:
    if form == "text":
        with suppress(FlintlogError, UnicodeDecodeError):
            return message.plain_body().decode(), "text"
        form = "base64"  # no text, or its codec is not installed, or it only claims to be compressed
    return (message.body.hex() if form == "hex" else base64.b64encode(message.body).decode("ascii")), form


def _text(message: StoredMessage) -> str:
    try:
        return decode_text(message.plain_body())
    except FlintlogError:
        return decode_text(message.body)
