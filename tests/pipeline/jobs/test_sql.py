"""SQL over a store: answers in every form, and one sentence for a wrong question."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.pipeline.conftest import COUNT

from flintlog.cli.main import run
from flintlog.cli.times import format_ms
from flintlog.errors import DamagedStore, FlintlogError, InvalidConfig
from flintlog.pipeline.sql import load_messages, needed_columns, query, write_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "tags", "keys", "uniq_key"),
    *("tags_code", "body", "body_crc", "properties", "flag", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "magic"),
)
JOINED = ["topic", "queue_offset", "physical_offset"]
BY_TOPIC = "select topic, count(*) as n from messages group by topic order by topic"


def test_a_question_is_answered_as_table_json_and_csv(
    spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "sql", str(store), BY_TOPIC]) == 0
    assert "payments" in capsys.readouterr().out
    assert run(["pipeline", "sql", str(store), BY_TOPIC, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"topic": "orders", "n": 200}, {"topic": "payments", "n": 100}]
    assert run(["pipeline", "sql", str(store), BY_TOPIC, "-o", "csv", "--limit", "1"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [["topic", "n"], ["orders", "200"]]


def test_times_are_shown_as_moments_in_utc(
    spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = "select min(store_timestamp) as first, unix_millis(min(store_timestamp)) as first_ms from messages"
    assert run(["pipeline", "sql", str(store), first, "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["first"] == format_ms(row["first_ms"])


def test_bodies_are_there_when_they_are_meant_and_decompressed(spark: SparkSession, store: Path) -> None:
    (row,) = query(spark, str(store), "select BODY from messages where properties['number'] = '57'").collect()
    assert bytes(row[0]) == b"body 57 " * 57
    assert "body" in query(spark, str(store), "select * from messages").columns
    assert "body" in query(spark, str(store), "from messages").columns
    assert query(spark, str(store), "select count(distinct to_json(struct(*))) from messages").collect()[0][0] == COUNT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BY_TOPIC, ["topic"]),
        ("select count(*) from messages", ["physical_offset"]),
        ("select max(size) from messages where topic like 'o%'", ["topic", "size"]),
        ("select a.topic from messages a join messages b on a.queue_offset = b.physical_offset", JOINED),
        ("with some as (select * from messages) select tags, keys[0] from some", ["tags", "keys"]),
        ("select topic from messages where size = (select max(size) from messages)", ["topic", "size"]),
        (
            "select topic, (select max(queue_id) from messages m where m.topic = 'a') from messages",
            ["topic", "queue_id"],
        ),
        ("select topic from messages where body is null and false", None),
        ("from messages", [*ALL]),
        ("select 1", ["physical_offset"]),
    ],
)
def test_a_question_reads_the_columns_that_its_plan_refers_to(
    spark: SparkSession, store: Path, text: str, expected: list[str] | None
) -> None:
    messages = load_messages(spark, [str(store)], {})
    found = needed_columns(spark, messages, text)
    assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "create table t as select 1",
        " -- why\n INSERT into messages values (1)",
        "/* x */ drop view messages",
        "with one as (select 1) insert into messages select * from one",
        "from messages insert into a select topic insert into b select topic",
    ],
)
def test_what_changes_something_is_no_question(spark: SparkSession, store: Path, text: str) -> None:
    with pytest.raises(InvalidConfig, match="is no question"):
        query(spark, str(store), text)
    assert query(spark, str(store), "(select 'drop it' as said from messages limit 1)").collect() == [("drop it",)]
    assert query(spark, str(store), "-- what is there\nshow views like 'messages'").count() == 1


def test_a_result_is_written_into_a_new_directory(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    answer = query(spark, str(store), "select queue_offset, keys, body from messages where topic = 'orders'")
    write_answer(answer, tmp_path / "parquet", "parquet")
    assert pq.read_table(tmp_path / "parquet").num_rows == 200
    write_answer(answer, tmp_path / "csv", "csv")
    parts = [part.read_text().splitlines() for part in (tmp_path / "csv").glob("*.csv")]
    assert {part[0] for part in parts} == {"queue_offset,keys,body"}
    assert sum(len(part) - 1 for part in parts) == 200
    with pytest.raises(InvalidConfig, match="new directory"):
        write_answer(answer, tmp_path / "csv", "csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("selec topic from messages", "Syntax error at or near 'selec'"),
        ("select topik from messages", "`topik` cannot be resolved. Did you mean one of the following?"),
        ("select 1 from nowhere", "`nowhere` cannot be found"),
    ],
)
def test_a_wrong_question_is_one_sentence(spark: SparkSession, store: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        query(spark, str(store), text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_fails_while_it_runs_is_one_sentence_and_leaves_nothing(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = query(spark, str(store), "select cast(tags as int) from messages")
    with pytest.raises(FlintlogError) as caught:
        write_answer(answer, tmp_path / "answer", "parquet")
    assert "\n" not in str(caught.value) and "paid" in str(caught.value)
    assert not (tmp_path / "answer").exists()
    assert run(["pipeline", "sql", str(store), "select cast(tags as int) from messages"]) == 3
    assert "\tat " not in capsys.readouterr().err


def test_a_missing_store_and_a_wrong_option_are_named(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DamagedStore, match="no store here"):
        query(spark, str(tmp_path / "nowhere"), BY_TOPIC)
    with pytest.raises(InvalidConfig, match="there is no option topiks"):
        query(spark, str(store), BY_TOPIC, options={"topiks": "a"})
    assert run(["pipeline", "sql", str(store), BY_TOPIC, "--option", "topics"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err
