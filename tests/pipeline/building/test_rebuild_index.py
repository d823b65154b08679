"""An index file of a rebuild, filled by several threads: the bytes are those of adding one key after another."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.pipeline.build_plans import make_plan

from flintlog import kernel
from flintlog.derive.index_plan import plan_index_files, starting_header
from flintlog.disk.media.local_file import LocalFile
from flintlog.errors import SyncFailed
from flintlog.format.index_file import HEADER_SIZE, IndexLayout, encode_index_header, parse_index_header
from flintlog.kernel import KEY
from flintlog.pipeline.building import rebuild_index
from flintlog.pipeline.building.rebuild_index import IndexTask, build_index_file
from flintlog.pipeline.building.rebuild_scan import BuildPlan

NOW_MS = 1_790_000_000_000
Key = tuple[int, int, int]


def make_keys(rng: random.Random, count: int) -> list[Key]:
    few = [rng.randrange(1 << 31) for _ in range(4)]
    return [
        (1000 * number, NOW_MS + rng.randrange(1 << 20) * number, rng.choice([*few, rng.randrange(1 << 31)]))
        for number in range(count)
    ]


def spill(plan: BuildPlan, splits: list[list[Key]]) -> None:
    Path(plan.spill).mkdir(parents=True)
    for number, keys in enumerate(splits):
        if keys:
            plan.keys_path(number).write_bytes(b"".join(KEY.pack(*key) for key in keys))


def added_one_by_one(keys: list[Key], layout: IndexLayout, previous: tuple[int, int] | None) -> bytes:
    file = bytearray(layout.file_size)
    if previous is not None:
        file[:HEADER_SIZE] = encode_index_header(starting_header(*previous))
    for offset, timestamp, key_hash in keys:
        assert kernel.index_insert(file, layout.slot_count, layout.index_count, key_hash, offset, timestamp)
    return bytes(file)


@pytest.mark.parametrize("thread_count", [1, 2, 3, 8])
@pytest.mark.parametrize("slot_count", [1, 5, 700])
def test_threads_fill_files_as_one_would_key_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot_count: int, thread_count: int
) -> None:
    monkeypatch.setattr(rebuild_index, "PIECE_KEYS", 7)
    monkeypatch.setattr(rebuild_index, "PIECES_AT_ONCE", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    layout = IndexLayout(slot_count, 101)
    rng = random.Random(thread_count * slot_count)
    splits = [make_keys(rng, count) for count in (1, 0, 60, 39, 1, 130, 3)]  # the first file ends where a split does
    plan = make_plan(tmp_path, layout)
    spill(plan, splits)
    left = [key for keys in splits for key in keys]
    previous = None
    for number, planned in enumerate(plan_index_files([len(keys) for keys in splits], layout)):
        keys, left = left[:100], left[100:]
        task = IndexTask(plan, f"file{number}", planned.ranges, previous, thread_count)
        assert build_index_file(task) == len(keys)
        made = (tmp_path / "staged" / "index" / f"file{number}").read_bytes()
        assert made == added_one_by_one(keys, layout, previous)
        assert parse_index_header(made).index_count == len(keys) + 1
        previous = keys[-1][1], keys[-1][0]
    assert not left
    assert number == 2


def test_every_share_of_the_slots_has_a_thread_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[tuple[int, int]] = []
    link = kernel.index_link

    def watched(slots: memoryview, keys: memoryview, first: int, share: int, share_count: int) -> object:
        linked.append((share, share_count))
        return link(slots, keys, first, share, share_count)

    monkeypatch.setattr(kernel, "index_link", watched)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    layout = IndexLayout(50, 100)
    plan = make_plan(tmp_path, layout)
    spill(plan, [make_keys(random.Random(1), 40)])
    (planned,) = plan_index_files([40], layout)
    build_index_file(IndexTask(plan, "file", planned.ranges, None, 8))  # more than this machine has
    assert set(linked) == {(0, 3), (1, 3), (2, 3)}


def test_a_thread_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = IndexLayout(50, 100)
    plan = make_plan(tmp_path, layout)
    spill(plan, [make_keys(random.Random(1), 40)])
    (planned,) = plan_index_files([40], layout)

    def refuse(*_: object) -> memoryview:
        raise OSError("no room")

    monkeypatch.setattr(kernel, "index_entries", refuse)
    with pytest.raises(OSError, match="no room"):
        build_index_file(IndexTask(plan, "file", planned.ranges, None, 2))
    assert not (tmp_path / "staged" / "index").exists()


def test_the_whole_file_is_synced_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = IndexLayout(50, 100)
    plan = make_plan(tmp_path, layout)
    spill(plan, [make_keys(random.Random(1), 40)])
    (planned,) = plan_index_files([40], layout)
    seen: list[tuple[object, bytes]] = []
    monkeypatch.setattr(LocalFile, "sync", lambda file, *place: seen.append((place, bytes(file.buffer))))
    build_index_file(IndexTask(plan, "file", planned.ranges, None, 2))
    made = (tmp_path / "staged" / "index" / "file").read_bytes()
    assert seen[-1] == ((), made)
    assert [place for place, _ in seen[:-1]] == [(layout.entry_position(1), layout.entry_position(41))]


def test_a_sync_that_failed_meanwhile_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = IndexLayout(50, 100)
    plan = make_plan(tmp_path, layout)
    spill(plan, [make_keys(random.Random(1), 40)])
    (planned,) = plan_index_files([40], layout)

    def sync(file: LocalFile, *place: int) -> None:
        if place:
            raise SyncFailed("the disk did not take the data", path=file.path)

    monkeypatch.setattr(LocalFile, "sync", sync)
    with pytest.raises(SyncFailed):
        build_index_file(IndexTask(plan, "file", planned.ranges, None, 2))
    assert not (tmp_path / "staged" / "index").exists()
