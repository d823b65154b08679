"""SQL over stores: the view `messages` has a row for each message, with the columns of the source.

Python sources have no column pruning, so the view leaves bodies out if the query cannot need them: it neither names
`body` nor selects all columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import absolute, local_path
from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading.logs import find_logs
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.spark.tasks import is_connect, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ServersSession

VIEW = "messages"
FORMS = ("parquet", "csv")
_COUNT = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_QUESTIONS = "select, from, with, values, show, describe or explain"
_LEADING = r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_COMMAND = re.compile(
    _LEADING
    + r"(add|alter|analyze|cache|call|clear|comment|create|declare|delete|drop|execute|grant|insert|load|merge|"
    r"msck|refresh|repair|replace|reset|revoke|set|sync|truncate|uncache|unset|update|use)\b",
    re.DOTALL | re.IGNORECASE,
)
_CATALYST = "org.apache.spark.sql.catalyst.plans.logical"
_CHANGING = (f"{_CATALYST}.Command", f"{_CATALYST}.InsertIntoStatement")
_SHOWING = re.compile(_LEADING + r"(show|desc|describe|explain)\b", re.DOTALL | re.IGNORECASE)
_CHANGING_NODE = re.compile(
    r"^[\s:|+'-]*(\w*Command|InsertInto\w*|OverwriteBy\w*|AppendData|DeleteFromTable|UpdateTable|MergeIntoTable)\b",
    re.MULTILINE,
)
_ANALYZED = "== Analyzed Logical Plan =="
_BODY = re.compile(r"\bbody\b|\*", re.IGNORECASE)


def load_messages(spark: SparkSession, stores: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """The messages of stores as rows; a wrong path or option raises one clear error."""
    pushdown = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") or "false"
    with plain_errors("reading the store"):
        reader = spark.read.format("flintlog").option("pushdown", pushdown)
        for name, value in options.items():
            reader = reader.option(name, value)
        places = [absolute(store) for store in stores]
        return reader.load(places) if len(places) > 1 else reader.load(places[0])


def query(
    spark: SparkSession, store: str | Sequence[str], text: str, *, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The result of a query over the view `messages`; bodies are decompressed unless an option says otherwise."""
    _check_question(text)
    stores = [store] if isinstance(store, str) else list(store)
    find_logs(tuple(stores), strict=False)
    asked = {"decompress": "true", **(options or {})}
    with plain_errors("the query"):
        _check_plan(spark, text)
        if _may_mean_bodies(text):
            return _ask(spark, stores, text, asked)
        answer = _ask(spark, stores, text, asked)
        without = {**asked, "includeBody": "false", "decompress": "false"}
        # `from messages` alone takes all columns without a star.
        return answer if "body" in answer.columns else _ask(spark, stores, text, without)


def _check_question(text: str) -> None:
    """Refuse commands that change something: Spark runs them at once, and a query may be sent to it twice."""
    command = _COMMAND.match(text)
    if command is not None:
        raise InvalidConfig(f"{command[1]} is no question", advice=_QUESTIONS)


def _check_plan(spark: SparkSession, text: str) -> None:
    """The same for text that begins as a query, as `with … insert` does."""
    if _SHOWING.match(text):
        return
    if is_connect(spark):
        _check_explained(spark, text)
        return
    from py4j.java_gateway import is_instance_of

    gateway = spark.sparkContext._gateway
    nodes = [spark._jsparkSession.sessionState().sqlParser().parsePlan(text)]
    for node in nodes:
        if any(is_instance_of(gateway, node, kind) for kind in _CHANGING):
            raise InvalidConfig(f"{node.nodeName()} is no question", advice=_QUESTIONS)
        children = node.children()
        nodes += [children.apply(number) for number in range(children.size())]


def _check_explained(spark: SparkSession, text: str) -> None:
    """The same where the plan is on a Connect server: as the text of its explanation."""
    plan = str(spark.sql(f"explain extended {text}").collect()[0][0]).partition(_ANALYZED)[0]
    changing = _CHANGING_NODE.search(plan)
    if changing is not None:
        raise InvalidConfig(f"{changing[1]} is no question", advice=_QUESTIONS)


def _may_mean_bodies(text: str) -> bool:
    """
    >>> _may_mean_bodies("select topic, count(*) from messages"), _may_mean_bodies("select * from messages")
    (False, True)
    """
    return _BODY.search(_COUNT.sub("", text)) is not None


def _ask(spark: SparkSession, stores: Sequence[str], text: str, options: Mapping[str, str]) -> DataFrame:
    messages = load_messages(spark, stores, options)
    if is_connect(spark):
        return _ask_server(spark, messages, text)
    with _view(spark, messages):
        return spark.sql(text)  # analysed here, so the answer needs the view no longer


def _ask_server(spark: SparkSession, messages: DataFrame, text: str) -> DataFrame:
    """The same of a Connect server, which analyses a question each time it is asked: the view is sent with it."""
    from pyspark.sql.connect.dataframe import DataFrame as ServersFrame
    from pyspark.sql.connect.plan import SQL, SubqueryAlias

    view = SubqueryAlias(cast("ServersFrame", messages)._plan, VIEW)
    answer = ServersFrame(SQL(text, [], {}, [view]), cast("ServersSession", spark))
    assert answer.schema is not None  # analysed once here, so that a wrong question is reported here
    return answer


@contextmanager
def _view(spark: SparkSession, messages: DataFrame) -> Iterator[None]:
    """The view `messages` while a question is analysed; afterwards the session has the one that it had, or none."""
    before = _session_view(spark)
    messages.createOrReplaceTempView(VIEW)
    try:
        yield
    finally:
        if before is None:
            spark.catalog.dropTempView(VIEW)
        else:
            before.createOrReplaceTempView(VIEW)


def _session_view(spark: SparkSession) -> DataFrame | None:
    from pyspark.errors import AnalysisException

    try:
        return spark.table(VIEW) if spark.catalog.getTable(VIEW).isTemporary else None
    except AnalysisException:
        return None


def write_answer(answer: DataFrame, target: str | Path, form: str) -> None:
    """Write a result with Spark's own writer into a new directory, which is deleted if that fails."""
    target, medium = local_path(target).absolute(), LocalMedium()
    if medium.exists(target):
        raise InvalidConfig("the target of a query must be a new directory", path=target)
    uri = target.as_uri()
    try:
        doing = f"sql: write the answer to {target}"
        with plain_errors("writing the answer"), watched(answer.sparkSession, doing=doing):
            if form == "csv":
                flat(answer).write.option("header", "true").csv(uri)
            else:
                answer.write.parquet(uri)
    except BaseException:
        medium.remove_tree(target)
        raise


def flat(answer: DataFrame) -> DataFrame:
    """CSV has neither lists nor maps nor bytes: they become JSON, and bytes hexadecimal."""
    from pyspark.sql import functions

    columns = []
    for name, kind in answer.dtypes:
        column = answer[f"`{name}`"]
        if kind == "binary":
            column = functions.lower(functions.hex(column))
        elif kind.startswith(("array", "map", "struct")):
            column = functions.to_json(column)
        columns.append(column.alias(name))
    return answer.select(*columns)
