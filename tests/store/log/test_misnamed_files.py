"""A log file under a wrong name: an opening for writing changes nothing, one for reading has all messages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.misnamed_scenes import (
    COUNT,
    FEW,
    ONLY_FILE,
    SCENES,
    SIZE,
    Change,
    disturbed,
    log_by_content,
    log_of,
    make,
    name_of,
    renamed,
    swapped,
)
from tests.store.scripted_group import CONFIG as LEDGER
from tests.store.small_store import ASYNC, SMALL, bytes_of, read_all

from flintlog import DamagedStore, Message, StoreConfig, open_store
from flintlog.checks.finding import ERROR
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]
STOPS = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    make(root)
    assert sorted(log_of(root)) == [name_of(number * SIZE) for number in range(4)]
    return root


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    make(root, FEW)
    assert list(log_of(root)) == [name_of(0)]
    return root


def _assert_refused(root: Path, *reported: str, config: StoreConfig = ASYNC) -> None:
    before = bytes_of(root)
    with pytest.raises(DamagedStore, match="wrong name") as raised:
        open_store(root, config)
    assert bytes_of(root) == before
    assert raised.value.path is not None and Path(raised.value.path).parent == root / "commitlog"
    for words in reported:
        assert words in str(raised.value)


def _put_right(made: Path, root: Path) -> None:
    """As somebody does it who follows the advice."""
    contents = {content: name for name, content in log_of(made).items()}
    for path in list((root / "commitlog").iterdir()):
        path.rename(path.with_name(f"right {contents[path.read_bytes()]}"))
    for path in list((root / "commitlog").iterdir()):
        path.rename(path.with_name(path.name.removeprefix("right ")))


@pytest.mark.parametrize("is_locked_before", [True, False], ids=["ran", "copied"])
@STOPS
@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_changed_and_the_right_name_is_told(
    made: Path, tmp_path: Path, scene: str, is_clean: bool, is_locked_before: bool
) -> None:
    change = SCENES[scene]
    root = disturbed(made, tmp_path / "store", change, is_clean=is_clean, is_locked_before=is_locked_before)
    _assert_refused(root, "rename ")
    assert log_of(root) != log_by_content(made, root)
    _put_right(made, root)
    with open_store(root, ASYNC) as store:
        assert [found.id for found in store.recovery] == []
        receipt = store.put(Message("orders", b"one more"))
        assert receipt and receipt.queue_offset == COUNT


@STOPS
@pytest.mark.parametrize("scene", ONLY_FILE)
def test_the_only_file(small: Path, tmp_path: Path, scene: str, is_clean: bool) -> None:
    root = disturbed(small, tmp_path / "store", ONLY_FILE[scene], is_clean=is_clean)
    _assert_refused(root, f"to {name_of(0)}")
    with open_store(root, ASYNC, read_only=True) as store:
        assert len(read_all(store, "orders")) == FEW


@STOPS
@pytest.mark.parametrize("scene", SCENES)
def test_who_only_reads_finds_everything_and_is_told(made: Path, tmp_path: Path, scene: str, is_clean: bool) -> None:
    root = disturbed(made, tmp_path / "store", SCENES[scene], is_clean=is_clean)
    before = bytes_of(root)
    with open_store(root, ASYNC, read_only=True) as store:
        assert {(found.id, found.severity) for found in store.recovery} == {("misnamed-log-file", ERROR)}
        for found in store.recovery:
            assert found.file is not None and found.physical_offset is not None
            assert found.remedy.startswith(f"rename {Path(found.file).name} to {name_of(found.physical_offset)}")
            assert Path(found.file).read_bytes() == log_of(made)[name_of(found.physical_offset)]
        kept = sum(len(content) for content in log_of(root).values()) / SIZE
        bodies = [message.body for message in read_all(store, "orders")]
        assert bodies == [b"%d" % number + bytes(500) for number in range(COUNT - len(bodies), COUNT)]
        assert len(bodies) == COUNT if kept == 4 else len(bodies) > COUNT // 2
    assert bytes_of(root) == before


def test_a_name_that_another_one_has_to_give_up_first_is_told_so(made: Path, tmp_path: Path) -> None:
    """The advice must not lead a reader to rename one file over the other."""
    for scene, waiting in (("two exchanged, the last among them", 2), ("all moved on by one", 3), ("one digit off", 0)):
        root = disturbed(made, tmp_path / scene, SCENES[scene])
        with open_store(root, ASYNC, read_only=True) as store:
            reported = [found for found in store.recovery if "after the file that is called so now" in found.remedy]
        assert len(reported) == waiting, scene
        taken = {name_of(found.physical_offset or 0) for found in reported}
        assert all((root / "commitlog" / name).exists() for name in taken)


@pytest.mark.parametrize("copy", [name_of(10 * SIZE), name_of(SIZE + 1000), name_of(4 * SIZE), name_of(0) + ".bak"])
@STOPS
def test_a_copy_beside_the_right_file(made: Path, tmp_path: Path, copy: str, is_clean: bool) -> None:
    def change(log: Path) -> None:
        shutil.copy(log / name_of(0), log / copy)

    root = disturbed(made, tmp_path / "store", change, is_clean=is_clean)
    _assert_refused(root, f"right name is {name_of(0)}, but that file is there")
    with open_store(root, ASYNC, read_only=True) as store:
        assert [found.id for found in store.recovery] == ["misnamed-log-file"]
        assert len(read_all(store, "orders")) == COUNT


def test_two_files_that_should_have_one_name(made: Path, tmp_path: Path) -> None:
    def change(log: Path) -> None:
        shutil.copy(log / name_of(SIZE), log / "a copy")
        renamed(SIZE, name_of(SIZE) + ".bak")(log)

    root = disturbed(made, tmp_path / "store", change)
    _assert_refused(root, "says the same of itself", "1 other files, too")


def test_a_file_of_another_store(made: Path, tmp_path: Path) -> None:
    """It fits by its offsets, and not by its time."""
    make(tmp_path / "other")

    def change(log: Path) -> None:
        (log / name_of(SIZE)).unlink()
        shutil.copy(tmp_path / "other" / "commitlog" / name_of(SIZE), log / (name_of(SIZE) + ".bak"))

    root = disturbed(made, tmp_path / "store", change)
    _assert_refused(root, "is it of another store?")


def test_half_of_a_file(made: Path, tmp_path: Path) -> None:
    def change(log: Path) -> None:
        renamed(0, name_of(0) + ".part")(log)
        with (log / (name_of(0) + ".part")).open("r+b") as file:
            file.truncate(SIZE // 2)

    root = disturbed(made, tmp_path / "store", change)
    _assert_refused(root, f"it has {SIZE // 2} bytes")


def test_a_number_that_no_file_has_is_reason_enough_to_search(small: Path, tmp_path: Path) -> None:
    """The only file, which has lost its begin: by that alone it could be one that was made ahead."""

    def change(log: Path) -> None:
        with (log / name_of(0)).open("r+b") as file:
            file.write(bytes(4096))
        renamed(0, 1)(log)

    _assert_refused(disturbed(small, tmp_path / "store", change), f"to {name_of(0)}")


def test_the_name_of_a_file_that_is_gone(made: Path, tmp_path: Path) -> None:
    """Neither the first nor the last has a wrong name, and only the gap tells."""

    def change(log: Path) -> None:
        (log / name_of(2 * SIZE)).unlink()
        renamed(SIZE, 2 * SIZE)(log)

    _assert_refused(disturbed(made, tmp_path / "store", change), f"to {name_of(SIZE)}")


def test_its_first_records_are_damaged(made: Path, tmp_path: Path) -> None:
    def change(log: Path) -> None:
        with (log / name_of(3 * SIZE)).open("r+b") as file:
            file.write(b"\xff" * 5000)
        renamed(3 * SIZE, 4 * SIZE)(log)

    _assert_refused(disturbed(made, tmp_path / "store", change, is_clean=False), f"to {name_of(3 * SIZE)}")


def test_retention_deletes_no_file_for_its_wrong_name(made: Path, tmp_path: Path) -> None:
    root = disturbed(made, tmp_path / "store", SCENES["the last, now the first"])
    _assert_refused(root, config=SMALL.with_changes(retention="on", file_reserved_time=0))


def test_two_in_the_middle_are_told_where_they_are_read(made: Path, tmp_path: Path) -> None:
    """Their names follow each other as they should, so that no opening looks into them for their names."""
    root = disturbed(made, tmp_path / "store", swapped(SIZE, 2 * SIZE), is_clean=False)
    (root / "checkpoint").unlink()
    before = log_of(root)
    with open_store(root, ASYNC) as store:
        reported = [found for found in store.recovery if found.id == "misnamed-log-file"]
        assert [found.physical_offset for found in reported] == [2 * SIZE]
        assert "after the file that is called so now" in reported[0].remedy
        assert store.put(Message("orders", b"one more"))
    after = log_of(root)
    assert all(after[name] == before[name] for name in (name_of(SIZE), name_of(2 * SIZE)))


# What is no file of a wrong name


def _zeroed_begin(log: Path) -> None:
    with (log / name_of(SIZE)).open("r+b") as file:
        file.write(bytes(5000))


def _garbage_behind(log: Path) -> None:
    (log / name_of(4 * SIZE)).write_bytes(b"x" * SIZE)


def _made_ahead(log: Path) -> None:
    (log / name_of(4 * SIZE)).write_bytes(bytes(SIZE))


def _empty(log: Path) -> None:
    (log / name_of(4 * SIZE)).write_bytes(b"")


@pytest.mark.parametrize("change", [_zeroed_begin, _garbage_behind, _made_ahead, _empty])
def test_what_is_wrong_otherwise_is_opened(made: Path, tmp_path: Path, change: Change) -> None:
    root = disturbed(made, tmp_path / "store", change, is_clean=False)
    with open_store(root, ASYNC) as store:
        assert not [found for found in store.recovery if found.id == "misnamed-log-file"]


def test_a_file_that_is_none_of_the_log(made: Path, tmp_path: Path) -> None:
    root = disturbed(made, tmp_path / "store", lambda log: (log / "notes.txt").write_text("mine"))
    with pytest.raises(DamagedStore, match=re.escape("whose name is not an offset")):
        open_store(root, ASYNC)


def test_counts_are_never_negative(made: Path, tmp_path: Path) -> None:
    """A file without a record, inside of another one's range."""
    root = disturbed(
        made, tmp_path / "store", lambda log: (log / name_of(SIZE + 100)).write_bytes(b"x" * SIZE) and None
    )
    with open_store(root, ASYNC, read_only=True) as store:
        assert all(found.size >= 0 for found in store.recovery)
        assert "-" not in "".join(re.findall(r"-?\d+ bytes", " ".join(found.evidence for found in store.recovery)))


# A ledger's member


@pytest.mark.parametrize("wrong", ["one off", "a suffix", "the last"])
@pytest.mark.parametrize("case", ["broker", "mixed"])
def test_a_data_file_of_a_ledger(golden: Golden, tmp_path: Path, case: str, wrong: str) -> None:
    """Heads stand before its records, and the file is where its records say all the same."""
    root = shutil.copytree(golden("ledger") / case / "store", tmp_path / "store")
    files = sorted((root / "dledger-n0" / "data").iterdir())
    written = [path for path in files if any(path.read_bytes()[:8])]
    path = written[0]
    to = {"one off": name_of(int(path.name) + 1), "a suffix": path.name + ".bak", "the last": name_of(50 * SIZE)}[wrong]
    path.rename(path.with_name(to))
    before = bytes_of(root)
    with pytest.raises(DamagedStore, match=f"wrong name.*rename {re.escape(to)} to {path.name}"):
        open_store(root, LEDGER.with_changes(max_index_num=StoreConfig().max_index_num))
    assert bytes_of(root) == before
    (found,) = [finding for finding in verify(root).findings if finding.severity == ERROR]
    assert (found.id, found.physical_offset) == ("misnamed-log-file", int(path.name))
