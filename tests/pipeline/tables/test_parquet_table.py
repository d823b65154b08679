"""A table's commits without Spark: dying before any step leaves each batch wholly there or not at all, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.jobs.test_export import Dying
from tests.pipeline.sink.test_sink_rows import write_late

from flintlog.errors import DamagedStore
from flintlog.pipeline.tables.parquet_table import ParquetTable, TableSpec
from flintlog.pipeline.tables.table_write import WrittenFile

SPEC = TableSpec()
BATCHES = 3


def stage(table: ParquetTable, batch: int) -> list[WrittenFile]:
    """Two files of a batch, and one that a lost attempt left."""
    table.staged.mkdir(parents=True, exist_ok=True)
    files = []
    for topic in ("a", "%b"):
        path = table.staged / f"{batch}-{topic}.parquet"
        path.write_text(f"{batch} {topic}")
        files.append(WrittenFile(str(path), topic, "2026-11-16", 1, 3))
    (table.staged / f"lost-{batch}.parquet").write_text("nobody's")
    return files


def go_on(table: ParquetTable) -> None:
    """What an export does: from the table's own position on, a batch after the other."""
    with table.opened(SPEC):
        for batch in range(table.position("") or 0, BATCHES):
            table.commit(stage(table, batch), {"": batch + 1})


def contents(root: Path) -> list[str]:
    return sorted(path.read_text() for path in root.glob("topic=*/day=*/*.parquet"))


def test_dying_before_any_step_and_going_on_gives_every_file_once(tmp_path: Path) -> None:
    expected = sorted(f"{batch} {topic}" for batch in range(BATCHES) for topic in ("a", "%b"))
    steps = 0
    while True:
        root = tmp_path / str(steps)
        try:
            go_on(ParquetTable(root, Dying(steps)))
        except KeyboardInterrupt:
            assert set(contents(root)) <= set(expected)
            go_on(ParquetTable(root))
            assert contents(root) == expected
            assert not (root / "_flintlog" / "staged").exists()
            steps += 1
            continue
        assert contents(root) == expected
        break
    assert steps >= BATCHES * 4


def test_what_its_owner_deleted_stays_deleted(tmp_path: Path) -> None:
    go_on(ParquetTable(tmp_path))
    for path in tmp_path.glob("topic=a/day=*/*.parquet"):
        path.unlink()
    go_on(ParquetTable(tmp_path))
    assert contents(tmp_path) == [f"{batch} %b" for batch in range(BATCHES)]


def test_a_damaged_commit_is_named_and_nothing_is_added(tmp_path: Path) -> None:
    go_on(ParquetTable(tmp_path))
    (tmp_path / "_flintlog" / "commits" / "00000002.json").write_text("{")
    with pytest.raises(DamagedStore, match="own record is damaged"):
        go_on(ParquetTable(tmp_path))


def test_an_attempt_that_still_writes_does_not_fail_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ParquetTable(tmp_path / "table")
    with table.opened(SPEC):
        files = stage(table, 0)
        seen = write_late(monkeypatch, 100)
        table.commit(files, {"": 1})
    assert seen
    assert contents(table.root) == ["0 %b", "0 a"]
    monkeypatch.undo()
    go_on(ParquetTable(tmp_path / "table"))
    assert not table.staged.exists()
