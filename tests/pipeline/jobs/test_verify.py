"""Verification on Spark: on every golden store, whole or broken, it finds what one process finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.maintenance.verify.test_verify import CLEAN, TORN
from tests.maintenance.verify.test_verify_ledger import RECORD, Member

from flintlog import Message, open_store
from flintlog.cli.main import run
from flintlog.errors import DamagedStore
from flintlog.maintenance.verify.verify import verify as verify_here
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.verify import count_kinds, findings_frame, verify
from flintlog.testing import SMALL_FILES, FakeClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Golden = Callable[[str], Path]


@pytest.mark.parametrize("case", [*(f"{case}/store" for case in CLEAN), "ha/master", "crash/after/store"])
def test_a_whole_store_is_found_whole(spark: SparkSession, golden: Golden, case: str) -> None:
    name, _, rest = case.partition("/")
    answer = verify(spark, golden(name) / rest, range_bytes=300_007)
    assert answer.findings == []
    assert answer == verify_here(golden(name) / rest)


@pytest.mark.parametrize("case", ["broker", "mixed"])
def test_the_store_of_a_ledgers_member_is_found_as_in_one_process(
    spark: SparkSession, golden: Golden, case: str
) -> None:
    answer = verify(spark, golden("ledger") / case / "store", range_bytes=50_003)
    assert answer.findings == []
    assert answer == verify_here(golden("ledger") / case / "store")


def test_a_ledgers_own_files_are_looked_at_as_in_one_process(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    member = Member(golden("ledger") / "mixed", tmp_path / "store")
    member.write_index(40, bytes(3 * RECORD.size))
    member.write_index(70, b"\x01" * RECORD.size)
    (member.directory / "currterm").unlink()
    answer = verify(spark, member.root, range_bytes=10_007)
    assert [finding.id for finding in answer.findings] == [
        "missing-ledger-index",
        "wrong-ledger-index",
        "damaged-ledger-vote",
    ]
    assert answer == verify_here(member.root)


@pytest.mark.parametrize("variant", TORN)
def test_each_damage_is_found_as_in_one_process(spark: SparkSession, golden: Golden, variant: str) -> None:
    root = golden("torn") / variant / "before" / "store"
    answer = verify(spark, root, range_bytes=100_003)
    assert {finding.id for finding in answer.findings} == TORN[variant]
    assert answer == verify_here(root)


def test_borders_inside_records_are_looked_at_again(spark: SparkSession, golden: Golden) -> None:
    root = golden("torn") / "flip" / "before" / "store"
    assert verify(spark, root, range_bytes=5_003).findings == verify_here(root).findings


def test_a_quick_look_is_the_same_too(spark: SparkSession, golden: Golden) -> None:
    root = golden("torn") / "truncated" / "before" / "store"
    assert verify(spark, root, mode="quick") == verify_here(root, mode="quick")


def test_findings_are_rows_and_are_counted_by_kind(spark: SparkSession, golden: Golden) -> None:
    answer = verify(spark, golden("torn") / "nocqindex" / "before" / "store")
    rows = findings_frame(spark, answer.findings).collect()
    assert {row.id for row in rows} == TORN["nocqindex"]
    assert [(row.evidence, row.physical_offset) for row in rows] == [
        (finding.evidence, finding.physical_offset) for finding in answer.findings
    ]
    assert {kind.id: kind.count for kind in count_kinds(answer.findings)} == {"missing-queues": 1, "missing-index": 1}
    assert findings_frame(spark, []).count() == 0


def test_a_directory_that_is_no_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DamagedStore, match="no store"):
        verify(spark, tmp_path)


def test_the_command_shows_a_table_by_kind_and_ends_with_1(
    spark: SparkSession, golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = golden("torn") / "nocqindex" / "before" / "store"
    assert run(["pipeline", "verify", str(root)]) == 1
    shown = capsys.readouterr().out
    assert "by kind" in shown
    assert "2 findings (full)" in shown
    assert run(["pipeline", "verify", str(root), "-o", "json"]) == 1
    assert {finding["id"] for finding in json.loads(capsys.readouterr().out)["findings"]} == TORN["nocqindex"]
    assert run(["pipeline", "verify", str(golden("plain") / "store"), "--quick"]) == 0
    assert run(["pipeline", "verify", str(tmp_path)]) == 3
    assert "there is no store here" in capsys.readouterr().err


@pytest.mark.parametrize("variant", ["plain/store", "torn/flip/before/store"])
def test_a_store_that_must_be_fetched_is_looked_at_like_any_other(
    spark: SparkSession, golden: Golden, variant: str
) -> None:
    name, _, rest = variant.partition("/")
    root = golden(name) / rest
    assert verify(spark, f"fsspec+local://{root}") == verify_here(root)
    with pytest.raises(DamagedStore, match="no store"):
        verify(spark, f"fsspec+local://{root}/nowhere")


def test_delay_levels_that_were_changed_are_neither_judged_nor_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    levels = SMALL_FILES.with_changes(services={"schedule"})
    for text in ("7s 2h 3d", "9s 9s 9s"):
        with open_store(tmp_path, levels.with_changes(message_delay_level=text), clock=FakeClock()) as opened:
            for level in (1, 2, 2):
                opened.put(Message("orders", b"x", delay_level=level)).check()
                opened.put(Message("orders", b"x", delay_level=level)).check()
    assert verify(spark, tmp_path).findings == []
    before = {path: path.read_bytes() for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()}
    rebuild(spark, tmp_path)
    assert {path: path.read_bytes() for path in before} == before
