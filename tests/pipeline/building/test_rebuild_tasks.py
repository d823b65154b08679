"""The tasks of a rebuild without Spark: tried again, run twice or at the same time, they write the same bytes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.pipeline.build_plans import make_plan
from tests.pipeline.conftest import COUNT

from flintlog.derive.chains import Reach, Span, find_log_end, join_gaps, join_spans
from flintlog.derive.log_files import LogFile
from flintlog.derive.splits import Gap, Split
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DiskFull, FlintlogError
from flintlog.format.index_file import IndexLayout
from flintlog.kernel import ScanStop
from flintlog.pipeline.building.rebuild_index import IndexTask, build_index_file
from flintlog.pipeline.building.rebuild_scan import ScanTask, read_split
from flintlog.pipeline.building.staging import sync_all
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.partitions import plan as plan_splits
from flintlog.pipeline.spark.tasks import Refusal, _Task

KEY_COUNT = sum(2 * bool(n % 4) + bool(n % 5) for n in range(COUNT))


def scan_tasks(store: Path, work: Path) -> list[ScanTask]:
    plan = make_plan(work, IndexLayout(100, 1000))
    (log,) = find_logs((str(store),))
    planned = plan_splits([(log, 0, find_end(log))], split_bytes=9_000, least_count=1)
    return [ScanTask(plan, number, each) for number, each in enumerate(planned)]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_files_and_then_their_names_up_to_the_top_are_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "staged"
    files = [top / place / "00000000000000000000" for place in ("queues/a/0", "queues/a/1", "queues/b/0")]
    synced: list[Path] = []
    monkeypatch.setattr(LocalMedium, "sync", lambda _, path: synced.append(path))
    monkeypatch.setattr(LocalMedium, "sync_directory", lambda _, folder: synced.append(folder))
    sync_all(LocalMedium(), files, (), top)
    assert sorted(synced[:3]) == files  # names after the files that they name
    folders = ["queues/a/0", "queues/a/1", "queues/a", "queues/b/0", "queues/b", "queues", "."]
    assert sorted(synced[3:]) == sorted(top / folder for folder in folders)


def test_attempts_at_the_same_splits_leave_the_same_bytes(store: Path, tmp_path: Path) -> None:
    once, often = scan_tasks(store, tmp_path / "once"), scan_tasks(store, tmp_path / "often")
    expected = [read_split(task) for task in once]
    threads = [threading.Thread(target=lambda: [read_split(task) for task in often]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read_split(task) for task in reversed(often)] == list(reversed(expected))
    assert files(tmp_path / "often") == files(tmp_path / "once")
    assert sum(result.record_count for result in expected) == COUNT


def test_attempts_at_the_same_index_file_leave_one(store: Path, tmp_path: Path) -> None:
    tasks = scan_tasks(store, tmp_path)
    counts = [read_split(task).key_count for task in tasks]
    from flintlog.derive.index_plan import plan_index_files

    (planned,) = plan_index_files(counts, IndexLayout(100, 1000))
    task = IndexTask(tasks[0].plan, "20260101000000000", planned.ranges, None)
    assert [build_index_file(task) for _ in range(2)] == [KEY_COUNT, KEY_COUNT]
    assert [path.name for path in (tmp_path / "staged" / "index").iterdir()] == ["20260101000000000"]
    assert all(path.name.startswith("keys-") for path in (tmp_path / "spill").iterdir())


def refuse(number: int) -> int:
    if number:
        raise DiskFull("no room", path="x", offset=number, advice="make some")
    return number


def test_an_error_of_ours_travels_as_values() -> None:
    fine, refused = map(_Task(refuse).answer, [0, 7])
    assert fine == 0
    assert isinstance(refused, Refusal)
    error = refused.error()
    assert isinstance(error, DiskFull) and isinstance(error, FlintlogError)
    assert str(error) == "no room [x] at 7 (make some)"


FILE = LogFile("f", 0, 100)
HALVES = [Split(FILE, 0, 50), Split(FILE, 50, 100)]


@pytest.mark.parametrize(
    ("reaches", "is_fine"),
    [
        ([Reach(0, 60, False), Reach(60, 100, False)], True),
        ([Reach(0, 60, False), Reach(55, 100, False)], False),
        ([Reach(0, 100, False), Reach(100, 100, False)], True),
        ([Reach(0, 40, True), Reach(100, 100, False)], True),
        ([Reach(0, 40, True), Reach(70, 100, False)], False),
    ],
)
def test_splits_that_do_not_meet_are_found(reaches: list[Reach], is_fine: bool) -> None:
    assert join_gaps(HALVES, reaches, [[], []]) == ([], [] if is_fine else [1])


def test_a_gap_at_the_end_of_a_split_goes_on_to_the_next_record() -> None:
    hole = Gap(10, 20, ScanStop.BAD_CRC)
    tail, head = Gap(40, 50, ScanStop.NO_RECORD), Gap(70, 80, ScanStop.BAD_LENGTH)
    reaches = [Reach(0, 50, False), Reach(70, 100, False)]
    joined = Gap(40, 80, ScanStop.NO_RECORD)
    assert join_gaps(HALVES, reaches, [[hole, tail], [head]]) == ([hole, joined], [])
    assert join_gaps(HALVES, reaches, [[hole], [head]])[1] == [1]


def test_the_log_ends_after_its_last_record() -> None:
    hole, tail = Gap(10, 20, ScanStop.NO_RECORD), Gap(80, 100, ScanStop.BAD_CRC)
    whole, empty = Reach(0, 50, False), Reach(100, 100, False)
    assert find_log_end(HALVES, [whole, Reach(50, 100, False)], [[hole], [tail]]) == 80
    assert find_log_end(HALVES, [whole, empty], [[Gap(30, 50, ScanStop.NO_RECORD)], []]) == 30
    assert find_log_end(HALVES, [Reach(0, 30, True), empty], [[], []]) == 100


def test_queues_with_a_gap_between_splits_or_inside_of_one_are_out_of_step() -> None:
    whole, out_of_step = join_spans(
        [
            {("a", 0): Span(3, 5), ("b", 0): Span(0, 2), ("c", 0): Span(0, 1, in_step=False)},
            {("a", 0): Span(5, 9), ("b", 0): Span(3, 4)},
        ]
    )
    assert whole["a", 0] == Span(3, 9)
    assert out_of_step == {("b", 0), ("c", 0)}
