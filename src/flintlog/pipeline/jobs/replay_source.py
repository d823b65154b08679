"""The sources of a replay: stores and tables of Parquet, as rows in the order in which they are put again.

    store      the log's own order; of several stores one after the other
    tables     the same, by their columns broker and physical_offset; without these by time, or unsorted

A table need not be one of ours: the columns of a message are enough (`sink_rows.py`), and others can be used in
expressions. A replay reads what the table holds when it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import is_uri, local_path
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.pipeline.reading.logs import find_logs
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.sql import load_messages
from flintlog.pipeline.tables.delta_reading import load_delta
from flintlog.pipeline.tables.iceberg_reading import load_iceberg
from flintlog.pipeline.tables.parquet_table import ROOM, TableSpec, parse_spec
from flintlog.pipeline.tables.table import find_form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMS: Final = ("store", "parquet", "delta", "iceberg")
_PLACE: Final = ("broker", "physical_offset")
_TIMES: Final = ("store_timestamp", "timestamp", "born_timestamp")
_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True, slots=True)
class Replayed:
    """Rows to be put again."""

    frame: DataFrame
    order: tuple[str, ...] = ()
    """The columns to sort by; none if the rows are in order."""

    are_bodies_plain: bool = True
    """Whether compressed bodies were decompressed: their flags are then wrong and are cleared."""


def guess_form(source: str) -> str:
    """The form of the source at a path."""
    if is_uri(source):
        return "store"
    root = local_path(source)
    names = [info.name for info in LocalMedium().listing(root)]
    is_parquet = any(name == ROOM or name.endswith(".parquet") or "=" in name for name in names)
    return find_form(root) or ("parquet" if is_parquet else "store")


def check_source(source: str, form: str | None = None) -> str:
    """Refuse a source that does not exist; returns its form."""
    form = form or guess_form(source)
    if form not in FORMS:
        raise InvalidConfig(f"nothing is replayed from {form}", advice=f"there are: {', '.join(FORMS)}")
    if form == "store":
        find_logs((source,), strict=False)
    elif not LocalMedium().listing(local_path(source)):
        raise DamagedStore("there is no table here", path=source)
    return form


def load_replayed(spark: SparkSession, source: str, form: str, *, fail_on_data_loss: bool) -> Replayed:
    """The rows of a source; nothing is read yet."""
    check_source(source, form)
    if form == "store":
        options = {"failOnDataLoss": str(fail_on_data_loss).lower(), "timestamps": "millis"}  # as in our tables
        return Replayed(load_messages(spark, (source,), options), are_bodies_plain=False)
    root = local_path(source).absolute()
    if form == "parquet":
        frame, spec = _load_parquet(spark, root), _load_spec(root)
    else:
        frame, description = load_delta(spark, root) if form == "delta" else load_iceberg(spark, root)
        spec = parse_spec(description)
    return Replayed(frame, _order(frame.columns), are_bodies_plain=spec is None or spec.decompress)


def _order(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that say in which order messages were stored. Clocks may have been turned back, offsets were not.

    >>> _order(["topic", "store_timestamp", "physical_offset"]), _order(["value", "timestamp"])
    (('physical_offset',), ('timestamp',))
    """
    if "physical_offset" in columns:
        return tuple(name for name in _PLACE if name in columns)
    return tuple(name for name in _TIMES if name in columns)[:1]


def _load_parquet(spark: SparkSession, root: Path) -> DataFrame:
    with plain_errors("reading the table"), _texts_stay_texts(spark):
        return spark.read.parquet(str(root))


@contextmanager
def _texts_stay_texts(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from reading a topic that looks like a number as a number."""
    before = spark.conf.getAll.get(_INFERENCE)
    spark.conf.set(_INFERENCE, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_INFERENCE)
        else:
            spark.conf.set(_INFERENCE, before)


def _load_spec(root: Path) -> TableSpec | None:
    medium, path = LocalMedium(), root / ROOM / "table.json"
    return parse_spec(medium.read(path)) if medium.exists(path) else None
