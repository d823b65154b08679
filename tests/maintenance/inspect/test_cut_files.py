"""Log files that lost their unused end, or all of their bytes: what is lost is named, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, kernel, open_store
from flintlog.checks.finding import ERROR, WARNING
from flintlog.errors import WrongFileSize
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify

FILE_BYTES = 65536
SMALL = StoreConfig(mapped_file_size_commit_log=FILE_BYTES, max_hash_slot_num=100, max_index_num=400)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The log files of a store that was stopped cleanly."""
    with open_store(tmp_path / "store", SMALL) as store:
        for _ in range(200):
            store.put(Message("orders", bytes(range(256)) * 4))
    return sorted((tmp_path / "store" / "commitlog").iterdir())


def records_end(file: Path) -> int:
    data = file.read_bytes()
    return kernel.scan(data, 0, len(data), int(file.name), check_crc=True).end


@pytest.mark.parametrize("left", [0, 4, 7, 8, 100])
@pytest.mark.parametrize("number", [1, -1], ids=["closed", "last"])
def test_a_file_cut_inside_its_unused_end_has_lost_nothing(files: list[Path], number: int, left: int) -> None:
    file, root = files[number], files[0].parents[1]
    data = file.read_bytes()
    os.truncate(file, records_end(file) + left)
    assert [(found.id, found.severity) for found in verify(root).findings] == [("wrong-file-size", WARNING)]
    plan = plan_repair(root)
    assert (plan.lost, plan.left) == ((), ())
    assert repair(root).lost == []
    assert file.read_bytes() == data
    assert verify(root).findings == []


def test_a_file_cut_inside_a_record_has_lost_it(files: list[Path]) -> None:
    os.truncate(files[1], records_end(files[1]) - 10)
    findings = verify(files[0].parents[1]).findings
    assert {found.id for found in findings} >= {"wrong-file-size", "damaged-range"}
    assert {found.severity for found in findings if found.id == "wrong-file-size"} == {ERROR}


def test_a_blank_whose_magic_was_damaged_is_no_lost_message(files: list[Path]) -> None:
    data = bytearray(files[1].read_bytes())
    data[records_end(files[1]) + 6] ^= 1
    files[1].write_bytes(data)
    root = files[0].parents[1]
    assert [found.id for found in verify(root).findings] == ["damaged-blank"]
    assert repair(root).lost == []
    assert verify(root).findings == []


def test_a_blank_whose_size_leads_over_the_next_file_is_found_and_mended(files: list[Path]) -> None:
    """It ends where a file begins, as a cut blank does, but not where the next one begins."""
    right = files[1].read_bytes()
    data = bytearray(right)
    data[records_end(files[1]) + 1] ^= FILE_BYTES >> 16
    files[1].write_bytes(data)
    root = files[0].parents[1]
    (finding,) = verify(root).findings
    assert (finding.id, finding.offset) == ("damaged-blank", records_end(files[1]))
    assert repair(root).lost == []
    assert files[1].read_bytes() == right
    assert verify(root).findings == []


def test_a_blank_that_became_zeros_is_no_lost_message(files: list[Path]) -> None:
    data = files[1].read_bytes()
    files[1].write_bytes(data[: records_end(files[1])].ljust(FILE_BYTES, b"\0"))
    root = files[0].parents[1]
    assert [found.id for found in verify(root).findings] == ["damaged-blank"]
    assert repair(root).lost == []
    assert files[1].read_bytes() == data
    assert verify(root).findings == []


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_whole_record_that_is_missing_at_a_files_end_is_lost(tmp_path: Path, has_queues: bool, is_cut: bool) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL) as store:
        for number in range(200):  # the last record of the second file is the only one of its queue
            store.put(Message("orders", bytes(range(256)) * 4, queue_id=int(number == 115)))
    files = sorted((root / "commitlog").iterdir())
    data = files[1].read_bytes()
    seen = kernel.scan(data, 0, len(data), int(files[1].name))
    assert seen.queues[seen.row(seen.count - 1).queue][1] == 1
    last = seen.row(seen.count - 1).physical_offset - int(files[1].name)
    files[1].write_bytes(data[:last].ljust(last if is_cut else FILE_BYTES, b"\0"))
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    assert plan_repair(root).lost


def lose_last_record(file: Path) -> int:
    """Overwrite the last record and the blank of a log file with zeros; returns the record's queue offset."""
    data = file.read_bytes()
    seen = kernel.scan(data, 0, len(data), int(file.name))
    last = seen.row(seen.count - 1)
    file.write_bytes(data[: last.physical_offset - int(file.name)].ljust(FILE_BYTES, b"\0"))
    return last.queue_offset


def clear_entries(root: Path, first: int, stop: int) -> None:
    (file,) = (root / "consumequeue" / "orders" / "0").iterdir()
    data = bytearray(file.read_bytes())
    data[first * 20 : stop * 20] = bytes((stop - first) * 20)
    file.write_bytes(data)


def test_a_skipped_queue_offset_shows_that_an_empty_end_held_a_message(files: list[Path]) -> None:
    root = files[0].parents[1]
    lost = lose_last_record(files[1])
    clear_entries(root, lost, lost + 1)
    assert [found.id for found in verify(root).findings] == ["damaged-range"]


def test_an_empty_end_after_the_last_queue_entry_may_have_held_a_message(tmp_path: Path) -> None:
    """After a crash the queues end before it, so they cannot say that nothing was there."""
    root = tmp_path / "store"
    with open_store(root, SMALL) as store:
        for number in range(200):  # the last record of the second file is the only one of its queue
            store.put(Message("orders", bytes(range(256)) * 4, queue_id=int(number == 115)))
    lose_last_record(sorted((root / "commitlog").iterdir())[1])
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    clear_entries(root, 110, 199)
    (root / "abort").touch()
    assert "damaged-range" in {found.id for found in verify(root).findings}


def test_an_empty_last_file_is_removed_by_an_opening_as_its_finding_says(files: list[Path]) -> None:
    empty = files[-1].with_name(f"{len(files) * FILE_BYTES:020d}")
    empty.touch()
    root = files[0].parents[1]
    (finding,) = verify(root).findings
    assert (finding.id, finding.severity) == ("empty-file", WARNING)
    assert "open the store, which removes it" in finding.remedy
    with open_store(root, SMALL):
        assert not empty.exists() or empty.stat().st_size


def test_an_empty_file_before_others_is_no_trace_of_a_crash(files: list[Path]) -> None:
    os.truncate(files[1], 0)
    root = files[0].parents[1]
    (finding,) = (found for found in verify(root).findings if found.id == "empty-file")
    assert finding.severity == ERROR
    assert "does not open before" in finding.remedy
    with pytest.raises(WrongFileSize):
        open_store(root, SMALL)
    repair(root)
    with open_store(root, SMALL) as store:
        assert store.get("orders", 0, 199).messages
