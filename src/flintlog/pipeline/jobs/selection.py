"""Selects the messages of a job: those that a consumer could get, of the requested topics.

Internal records of the store or a broker (waiting delayed messages, half messages, closing markers) are selected only
if their topic is named: otherwise they would be delivered or checked a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flintlog.errors import InvalidConfig
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.format.topics import SYSTEM_NAMES, SYSTEM_PREFIX
from flintlog.pipeline.spark.failures import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SEEN = [int(TransactionType.NONE), int(TransactionType.COMMIT)]


def of_topics(frame: DataFrame, topics: Sequence[str] | None) -> DataFrame:
    """The rows of these topics; without them, of all that are not RocketMQ's own."""
    from pyspark.sql import functions as f

    if topics is not None:
        return frame.where(f.col("topic").isin(*topics))
    topic = f.col("topic")
    return frame.where(~(topic.isin(*sorted(SYSTEM_NAMES)) | topic.startswith(SYSTEM_PREFIX)))


def seen_by_consumers(frame: DataFrame) -> DataFrame:
    """The rows without prepared and rolled back messages, if there is a column `sys_flag`."""
    from pyspark.sql import functions as f

    if "sys_flag" not in frame.columns:
        return frame
    flags = f.coalesce(f.col("sys_flag"), f.lit(0)).bitwiseAND(TRANSACTION_MASK)
    return frame.where(flags.isin(*_SEEN))


def stored_between(frame: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    """The rows stored at or after `since_ms` and before `until_ms`."""
    if (since_ms is not None or until_ms is not None) and "store_timestamp" not in frame.columns:
        raise InvalidConfig("these rows have no store_timestamp", advice="choose them by `where` instead of by time")
    if since_ms is not None:
        frame = frame.where(milliseconds(frame, "store_timestamp") >= since_ms)
    if until_ms is not None:
        frame = frame.where(milliseconds(frame, "store_timestamp") < until_ms)
    return frame


def milliseconds(frame: DataFrame, name: str) -> Column:
    """A column of times as milliseconds since 1970: tables that are not ours may have timestamps."""
    from pyspark.sql import functions as f

    return f.unix_millis(name) if dict(frame.dtypes)[name] == "timestamp" else f.col(name)


def keys_by(frame: DataFrame, expression: str | None) -> Column:
    """The keys of each row as an array: by an expression of SQL, or those it has; null or empty where it has none."""
    from pyspark.sql import functions as f

    if expression is None:
        return f.col("keys")
    kind = typed(frame, "key", expression)
    if kind == "array<string>":
        return f.expr(expression)
    if kind.startswith(("array", "map", "struct")):
        raise InvalidConfig(f"the key {expression!r} is {kind}", advice="a single value, or array<string>")
    return f.when(f.expr(expression).isNotNull(), f.array(f.expr(f"cast(({expression}) as string)")))


def typed(frame: DataFrame, what: str, expression: str) -> str:
    """Spark's type of an expression over a frame; an invalid one raises one clear error."""
    with plain_errors(f"the expression of the {what}"):
        return frame.selectExpr(f"({expression}) as it").dtypes[0][1]
