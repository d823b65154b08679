"""SQL over stores: the view `messages` has a row for each message, with the columns of the source.

Python sources have no column pruning. So a question is first planned over an empty frame with the same columns: Spark's
own optimizer says which of them the plan refers to, and the view has only these. A session of Spark Connect shows no
plan; there only bodies are left out, if the question neither names them nor selects all columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import absolute, local_path
from flintlog.errors import FlintlogError, InvalidConfig
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
_BODY = re.compile(r"\b(body|value)\b|\*", re.IGNORECASE)
_BODIES = frozenset({"body", "value"})

Java = Any
"""An object of the JVM's, of any class."""


def load_messages(spark: SparkSession, stores: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """The messages of stores as rows; a wrong path or option raises one clear error."""
    with plain_errors("reading the store"):
        reader = spark.read.format("flintlog")
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
        messages = load_messages(spark, stores, asked)
        chosen = needed_columns(spark, messages, text)
        if chosen is None or set(chosen) == set(messages.columns):
            return _ask(spark, messages, text)
        if not _BODIES & {*chosen}:
            asked["decompress"] = "false"
        return _ask(spark, load_messages(spark, stores, {**asked, "columns": ",".join(chosen)}), text)


def needed_columns(spark: SparkSession, messages: DataFrame, text: str) -> list[str] | None:
    """The columns of the view that a question refers to, at least one; None if the plan does not show them."""
    if _SHOWING.match(text):
        return None
    if is_connect(spark):
        # `from messages` alone takes all columns without a star.
        has_bodies = _may_mean_bodies(text) or _BODIES & {*_ask(spark, messages, text).columns}
        return None if has_bodies else [name for name in messages.columns if name not in _BODIES]
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), messages.schema)
    plan = _ask(spark, empty, text)._jdf.queryExecution().optimizedPlan()
    used, offered = _plan_columns(plan)
    names = {offered[each] for each in used & offered.keys()}
    if names - set(messages.columns):
        return None
    found = [name for name in messages.columns if name in names] or [_cheapest(messages.columns)]
    # Columns that the optimizer dropped may still be named in the text: it is asked again with what is left.
    return found if _is_answered(spark, empty.select(*found), text) else None


def _cheapest(columns: Sequence[str]) -> str:
    """The column for a question that only counts."""
    return next((name for name in ("physical_offset", "offset") if name in columns), columns[0])


def _plan_columns(plan: Java) -> tuple[set[int], dict[int, str]]:
    """By expression id: what the nodes of a plan refer to, and what its leaves have, by name."""
    used = {each.exprId().id() for each in _elements(plan.output())}
    offered: dict[int, str] = {}
    nodes = [plan]
    for node in nodes:
        below = [*_elements(node.children()), *_elements(node.subqueries())]
        nodes += below
        if _elements(node.children()):
            used |= {each.exprId().id() for each in _elements(node.references().toSeq())}
        else:
            offered |= {each.exprId().id(): each.name() for each in _elements(node.output())}
    return used, offered


def _elements(sequence: Java) -> list[Java]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _is_answered(spark: SparkSession, messages: DataFrame, text: str) -> bool:
    try:
        with plain_errors("the query"):
            _ask(spark, messages, text)
    except FlintlogError:
        return False
    return True


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


def _ask(spark: SparkSession, messages: DataFrame, text: str) -> DataFrame:
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
