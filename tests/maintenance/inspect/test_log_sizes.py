"""The size of log files is that of those with records: a file under a wrong name changes no other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.derive.log_files import log_file_size
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]
SIZE = 1048576


@pytest.mark.parametrize("case", ["transaction", "plain"])
@pytest.mark.parametrize("name", [SIZE + 100, 20_000_000])
@pytest.mark.parametrize("length", [SIZE, 1000])
def test_a_misnamed_neighbour_does_not_inflate_a_log_file(
    case: str, name: int, length: int, golden: Golden, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden(case) / "store", store)
    files = {path.name: path.stat().st_size for path in (store / "commitlog").iterdir()}
    (store / "commitlog" / f"{name:020d}").write_bytes(bytes(length))
    assert [finding.id for finding in verify(store).findings] == ["foreign-file"]
    repair(store)
    assert {path.name: path.stat().st_size for path in (store / "commitlog").iterdir()} == files
    assert verify(store).findings == []


def test_a_shared_length_is_the_size_whatever_the_names_say() -> None:
    assert log_file_size([(0, 1024), (1124, 1024)]) is None
    assert log_file_size([(0, 1024), (1024, 1024), (9999, 1024)]) is None
    assert log_file_size([(0, 700), (1024, 1024)]) == 1024
