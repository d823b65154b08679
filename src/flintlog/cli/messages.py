"""A stored message as a row: the names of `StoredMessage`, the body in the form that was asked for."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from flintlog.errors import FlintlogError
from flintlog.format.java import decode_text

if TYPE_CHECKING:
    from flintlog.store.stored import StoredMessage

FIELDS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "tags", "keys", "uniq_key"),
    *("tags_code", "body", "body_crc", "properties", "flag", "sys_flag", "born_timestamp", "born_host"),
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


def to_row(message: StoredMessage, body: str = "text") -> dict[str, object]:
    """Every field of a message; text is of the body as its producer had it, the other forms of the stored bytes."""
    row: dict[str, object] = {name: getattr(message, name) for name in FIELDS if name != "body"}
    if body == "none":
        return row
    row["body"] = _body(message, body)
    return {name: row[name] for name in FIELDS}


def _body(message: StoredMessage, form: str) -> str:
    if form == "hex":
        return message.body.hex()
    if form == "base64":
        return base64.b64encode(message.body).decode("ascii")
    try:
        return decode_text(message.plain_body())
    except FlintlogError:
        return decode_text(message.body)  # its codec is not installed, or it only claims to be compressed
