"""Decoded records as Arrow: record batches that wrap the kernel's own buffers.

Columns alone need pyarrow: a store puts and gets without it.
"""

from __future__ import annotations

from flintlog.errors import MissingExtra
from flintlog.kernel import Column, Decoded

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise MissingExtra("columns need pyarrow", advice="pip install 'flintlog[arrow]'") from error

_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "utf8": pa.utf8(), "binary": pa.binary()}
_ORDER = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "tags", "keys", "uniq_key"),
    *("tags_code", "body", "body_crc", "properties", "flag", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "magic"),
)


def to_record_batch(decoded: Decoded) -> pa.RecordBatch:
    """Wrap the kernel's buffers; nothing is copied."""
    columns = decoded.columns
    names = [name for name in _ORDER if name in columns]
    return pa.record_batch([_array(name, columns) for name in names], names=names)


def _array(name: str, columns: dict[str, Column]) -> pa.Array:
    column = columns[name]
    if column.kind == "list":
        items = _array(f"{name}.item", columns)
        return pa.Array.from_buffers(pa.list_(pa.utf8()), column.length, _buffers(column)[:2], children=[items])
    if column.kind == "map":
        entries = pa.StructArray.from_arrays(
            [_array(f"{name}.key", columns), _array(f"{name}.value", columns)],
            fields=[pa.field("key", pa.utf8(), nullable=False), pa.field("value", pa.utf8())],
        )
        kind = pa.map_(pa.utf8(), pa.utf8())
        return pa.Array.from_buffers(kind, column.length, _buffers(column)[:2], children=[entries])
    buffers = _buffers(column)
    if column.offsets is None:
        buffers.pop(1)
    return pa.Array.from_buffers(_TYPES[column.kind], column.length, buffers, column.null_count)


def _buffers(column: Column) -> list[pa.Buffer | None]:
    parts = (column.validity, column.offsets, column.data)
    return [None if part is None else pa.py_buffer(part) for part in parts]
