"""A ledger's files: what is appended is found again, byte for byte as the real DLedger writes it."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore, DiskFull, FormatError, InvalidMessage, InvalidOffset
from flintlog.format.ledger import EntryHead, LedgerCheckpoint, LedgerPromise, TermVote
from flintlog.store.ledger import ledger_recovery
from flintlog.store.ledger.ledger_files import LedgerFiles
from flintlog.store.ledger.ledger_state import LedgerState

Golden = Callable[[str], Path]
DATA_BYTES, INDEX_BYTES = 8 * 1024, 32 * 64


def opened(directory: Path, **options: object) -> LedgerFiles:
    files = LedgerFiles(
        directory,
        LocalMedium(),
        data_file_bytes=DATA_BYTES,
        index_file_bytes=INDEX_BYTES,
        **options,  # type: ignore[arg-type]
    )
    files.load()
    return files


def grow(files: LedgerFiles, bodies: list[bytes], term: int = 1) -> None:
    for body in bodies:
        position = files.place(files.end_position, 48 + len(body))
        files.append([(EntryHead(files.end + 1, term, position, len(body)), body)])


def some_bodies(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.choice((0, 1, 40, 200, 900))) for _ in range(count)]


def contents(files: LedgerFiles) -> list[tuple[EntryHead, bytes]]:
    return [files.entry(index) for index in range(max(files.begin, 0), files.end + 1)]


def stored(directory: Path) -> dict[str, bytes]:
    return {
        f"{folder}/{path.name}": path.read_bytes()
        for folder in ("data", "index")
        for path in sorted((directory / folder).iterdir())
    }


def golden_entries(path: Path) -> Iterator[tuple[EntryHead, bytes]]:
    for line in path.read_text().splitlines()[1:]:
        reported = json.loads(line)
        body = base64.b64decode(reported["body"])
        yield EntryHead(reported["index"], reported["term"], reported["pos"], len(body)), body


# ------------------------------------------------------------------ beside Java's files


def test_the_same_entries_give_the_same_bytes_as_javas(golden: Golden, tmp_path: Path) -> None:
    case = golden("ledger") / "group"
    files = opened(tmp_path / "ours")
    files.append(list(golden_entries(case / "entries.jsonl")))
    files.close()
    assert stored(tmp_path / "ours") == stored(case / "dledger-n0")


@pytest.mark.parametrize(("node", "truth"), [("dledger-n1", "entries"), ("diverged", "diverged")])
def test_java_s_files_are_opened_and_unchanged(golden: Golden, tmp_path: Path, node: str, truth: str) -> None:
    case = golden("ledger") / "group"
    shutil.copytree(case / node, tmp_path / "copy")
    files = opened(tmp_path / "copy")
    assert contents(files) == list(golden_entries(case / f"{truth}.jsonl"))
    files.close()
    assert stored(tmp_path / "copy") == stored(case / node)


def test_a_diverged_tail_is_cut_and_goes_on_as_the_others_have_it(golden: Golden, tmp_path: Path) -> None:
    case = golden("ledger") / "group"
    shutil.copytree(case / "diverged", tmp_path / "copy")
    right = list(golden_entries(case / "entries.jsonl"))
    files = opened(tmp_path / "copy")
    assert files.end == 209
    files.truncate(199)
    files.append(right[200:])
    files.close()
    assert stored(tmp_path / "copy") == stored(case / "dledger-n2")


# ------------------------------------------------------------------ appending and reading


def test_entries_are_found_by_index_over_many_files(tmp_path: Path) -> None:
    bodies = some_bodies(300)
    files = opened(tmp_path)
    grow(files, bodies)
    assert [body for _, body in contents(files)] == bodies
    assert len(files.data.segments) > 5
    assert files.term_of(17) == 1
    assert files.position_after(17) == files.index_record(17).position + files.index_record(17).size
    assert files.sync() == 299
    assert files.synced_position == files.end_position


def test_an_entry_leaves_eight_bytes_free(tmp_path: Path) -> None:
    files = opened(tmp_path)
    assert files.place(0, DATA_BYTES - 8) == 0
    with pytest.raises(InvalidMessage):
        files.place(0, DATA_BYTES - 7)
    assert files.place(100, DATA_BYTES - 108) == 100
    assert files.place(100, DATA_BYTES - 107) == DATA_BYTES
    assert files.place(DATA_BYTES, 48) == DATA_BYTES


@pytest.mark.parametrize(
    "head",
    [
        EntryHead(2, 1, 148, 0),
        EntryHead(0, 1, 148, 0),
        EntryHead(1, 0, 148, 0),
        EntryHead(1, 1, 147, 0),
        EntryHead(1, 1, 8192, 0),
        EntryHead(1, 1, 148, 1),
    ],
    ids=["gap", "again", "earlier term", "wrong place", "next file too soon", "other size"],
)
def test_what_does_not_follow_is_refused_and_not_written(tmp_path: Path, head: EntryHead) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 100])
    with pytest.raises(InvalidOffset):
        files.append([(head, b"")])
    assert (files.end, files.end_position) == (0, 148)
    files.close()
    assert opened(tmp_path).end == 0


def test_an_empty_ledger_has_nothing(tmp_path: Path) -> None:
    files = opened(tmp_path)
    assert (files.begin, files.end, files.end_term, files.end_position) == (-1, -1, -1, 0)
    with pytest.raises(InvalidOffset):
        files.entry(0)
    with pytest.raises(InvalidOffset):
        files.entry(-1)


def test_entries_of_files_that_will_be_deleted_are_not_there(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(100))
    first, second = files.data.segments[:2]
    assert files.let_go(first.end)
    begin = files.begin
    assert begin > 0
    assert files.entry(begin)[0].position == first.end
    with pytest.raises(InvalidOffset):
        files.entry(begin - 1)
    assert first.destroy(0, 0)  # unlinked, and still in the list: nobody looks at it
    assert files.begin == begin
    files.data._forget(first)
    assert files.begin == begin
    assert files.let_go(second.end)
    assert files.begin > begin
    assert not files.let_go(files.data.segments[-1].end)
    files.close()


def test_begin_moves_when_old_files_are_deleted(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(100))
    assert files.data.delete_before(2 * DATA_BYTES, now_ms=0) == 2
    first = next(index for index in range(100) if _is_behind(files, index))
    assert files.begin == first
    files.close()
    assert opened(tmp_path).begin == first


def test_index_records_of_deleted_entries_go_with_the_next_file(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(300))
    before = len(list((tmp_path / "index").iterdir()))
    files.data.delete_before(files.data.segments[-1].base, now_ms=0)
    grow(files, some_bodies(60, seed=2))
    after = sorted(int(path.name) for path in (tmp_path / "index").iterdir())
    assert len(after) < before
    assert after[0] <= files.begin * 32 < after[0] + INDEX_BYTES
    for index in range(files.begin, files.end + 1):
        assert files.entry(index)[0].index == index
    files.close()
    again = opened(tmp_path)
    assert (again.begin, again.end) == (files.begin, 359)


def _is_behind(files: LedgerFiles, index: int) -> bool:
    try:
        return files.entry(index)[0].position >= 2 * DATA_BYTES
    except (DamagedStore, InvalidOffset):
        return False


# ------------------------------------------------------------------ opening


def test_a_missing_index_is_written_again(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(300))
    files.close()
    before = stored(tmp_path)
    shutil.rmtree(tmp_path / "index")
    opened(tmp_path).close()
    assert stored(tmp_path) == before


def test_a_damaged_index_is_mended(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(300))
    files.close()
    before = stored(tmp_path)
    last = max((tmp_path / "index").iterdir())
    last.write_bytes(bytes(64) + last.read_bytes()[64:-32] + b"\xff" * 32)
    opened(tmp_path).close()
    assert stored(tmp_path) == before


def overwrite(directory: Path, position: int, data: bytes) -> Path:
    path = directory / "data" / f"{position // DATA_BYTES * DATA_BYTES:020d}"
    found = bytearray(path.read_bytes())
    found[position % DATA_BYTES : position % DATA_BYTES + len(data)] = data
    path.write_bytes(found)
    return path


def wrong_number(place: int) -> bytes:
    return (0x80000000 if place == 16 else 0x7F000000).to_bytes(4, "big")  # only an earlier term is wrong


@pytest.mark.parametrize("place", [0, 4, 8, 16, 24, 44])
def test_the_log_ends_before_a_last_entry_with_a_wrong_number(tmp_path: Path, place: int) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(60), term=3)
    position = files.index_record(59).position
    files.close()
    path = overwrite(tmp_path, position + place, wrong_number(place))
    torn = path.read_bytes()[position % DATA_BYTES :].rstrip(b"\0")
    files = opened(tmp_path)
    assert files.end == 58
    assert files.torn is not None
    assert files.torn.id == "torn-tail"
    files.close()
    assert not any(path.read_bytes()[position % DATA_BYTES :])
    assert (tmp_path / f"cut/{position:020d}").read_bytes() == torn


@pytest.mark.parametrize("place", [0, 4, 8, 16, 24, 44])
def test_a_wrong_number_before_an_intact_entry_is_damage_and_nothing_is_touched(tmp_path: Path, place: int) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(60), term=3)
    position = files.index_record(55).position
    files.close()
    overwrite(tmp_path, position + place, wrong_number(place))
    before = stored(tmp_path)
    with pytest.raises(DamagedStore, match="entry 55 of the ledger is damaged, and entry 56"):
        opened(tmp_path)
    assert stored(tmp_path) == before


def test_one_wrong_byte_in_any_files_first_head_erases_nothing(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 200] * 130, term=3)
    files.save_checkpoint(129)
    files.close()
    before = stored(tmp_path)
    for path in sorted((tmp_path / "data").iterdir()):
        sound = path.read_bytes()
        for place in range(48):
            path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x40]) + sound[place + 1 :])
            changed = stored(tmp_path)
            try:
                files = opened(tmp_path)
            except DamagedStore:
                assert stored(tmp_path) == changed
            else:
                assert files.end == 129  # in a file that is not read, or a number that nobody needs
                files.close()
            path.write_bytes(sound)
            shutil.rmtree(tmp_path / "index")
            (tmp_path / "index").mkdir()
    opened(tmp_path).close()
    assert stored(tmp_path) == before


def test_a_ledger_without_its_files_is_not_a_new_one(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 200] * 20)
    files.save_checkpoint(19)
    files.close()
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(DamagedStore, match="entry 19 was committed"):
        opened(tmp_path)


@pytest.mark.parametrize("lost", [range(1, 2), range(2, 3), range(1, 4)], ids=["one", "its last", "several"])
def test_sectors_that_never_came_end_the_log_though_later_ones_came(tmp_path: Path, lost: range) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 100, b"y" * 1200, b"z" * 900, b"w" * 900])
    files.close()
    for sector in lost:
        path = overwrite(tmp_path, sector * 512, bytes(512))
    left = path.read_bytes()
    files = opened(tmp_path, is_intact=lambda body, position: len(set(bytes(body))) < 2)
    assert files.end == 0
    files.close()
    assert (tmp_path / f"cut/{148:020d}").read_bytes() == left[148:].rstrip(b"\0")


def test_an_uncommitted_entry_without_its_body_is_dropped_and_a_committed_one_stays(tmp_path: Path) -> None:
    def is_intact(body: memoryview, position: int) -> bool:
        return any(body)

    files = opened(tmp_path)
    grow(files, [b"a" * 10, bytes(1200), b"b" * 10, bytes(1200), b"c"])
    files.save_checkpoint(2)
    files.close()
    assert opened(tmp_path).end == 4
    assert opened(tmp_path, is_intact=is_intact).end == 2


def test_a_wrong_byte_in_a_body_before_an_intact_entry_is_damage(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 100] * 40)
    position = files.index_record(10).position
    files.close()
    overwrite(tmp_path, position + 60, b"y")
    before = stored(tmp_path)
    with pytest.raises(DamagedStore, match="entry 10 of the ledger is damaged, and entry 11"):
        opened(tmp_path, is_intact=lambda body, position: len(set(bytes(body))) == 1)
    assert stored(tmp_path) == before


def test_an_entry_that_a_writer_finishes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 100] * 40)
    position = files.index_record(10).position
    files.close()
    looks: list[int] = []

    def is_intact(body: bytes | memoryview, where: int) -> bool:
        looks.append(where)
        return where != position or looks.count(position) > 1

    assert opened(tmp_path, is_intact=is_intact).end == 9, "the log's end when reading began"


def test_a_blank_that_a_writer_finishes_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 200] * 60)
    assert files.index_record(33).position == DATA_BYTES
    files.close()
    monkeypatch.setattr(ledger_recovery, "_is_blank", lambda view, place, limit: False)
    assert opened(tmp_path).end == 32, "the log's end when reading began"


def test_a_wrong_byte_in_the_blank_that_closes_a_file_is_damage(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 200] * 60)
    blank = files.index_record(32).position + 248
    assert files.index_record(33).position == DATA_BYTES
    files.close()
    for place in range(8):
        path = overwrite(tmp_path, blank + place, b"\x55")
        with pytest.raises(DamagedStore, match="entry 33 of the ledger is damaged, and entry 33 after it"):
            opened(tmp_path)
        sound = bytearray(path.read_bytes())
        sound[blank : blank + 8] = b"\xff" * 4 + (DATA_BYTES - blank).to_bytes(4, "big")
        path.write_bytes(sound)
    assert opened(tmp_path).end == 59


def test_a_file_that_is_missing_in_the_middle_is_damage(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"x" * 200] * 110)
    files.close()
    (tmp_path / f"data/{2 * DATA_BYTES:020d}").unlink()
    before = stored(tmp_path)
    with pytest.raises(DamagedStore):
        opened(tmp_path)
    assert stored(tmp_path) == before


def test_an_entry_of_a_term_that_the_member_does_not_know_is_not_cut(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.state.save_vote(TermVote(3, "n0"))
    grow(files, [b"x"] * 3, term=3)
    grow(files, [b"y"], term=4)
    files.close()
    before = stored(tmp_path)
    with pytest.raises(DamagedStore, match="entry 3 of the ledger is of term 4"):
        opened(tmp_path)
    assert stored(tmp_path) == before


def test_a_ledger_that_lost_what_was_committed_is_not_opened(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(60))
    files.save_checkpoint(59)
    files.close()
    last = max((tmp_path / "data").iterdir())
    last.write_bytes(bytes(DATA_BYTES))
    with pytest.raises(DamagedStore, match="entry 59 was committed"):
        opened(tmp_path)


# ------------------------------------------------------------------ truncating


@pytest.mark.parametrize("last_index", [298, 250, 100, 0])
def test_after_a_truncation_the_files_are_those_of_a_shorter_log(tmp_path: Path, last_index: int) -> None:
    bodies = some_bodies(300)
    files = opened(tmp_path / "cut")
    grow(files, bodies)
    files.sync()
    files.truncate(last_index)
    assert files.end == last_index
    short = opened(tmp_path / "short")
    grow(short, bodies[: last_index + 1])
    assert (files.end_term, files.end_position) == (short.end_term, short.end_position)
    for either in (files, short):
        grow(either, [b"new"], term=2)
        either.close()
    assert stored(tmp_path / "cut") == stored(tmp_path / "short")


def test_a_ledger_can_begin_again_at_the_leaders_first_file(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(100))
    files.save_checkpoint(99)
    with pytest.raises(InvalidOffset):
        files.restart(5 * DATA_BYTES + 1, 777)
    files.restart(5 * DATA_BYTES, 777)
    assert (files.begin, files.end, files.end_position) == (-1, -1, 5 * DATA_BYTES)
    files.append([(EntryHead(777, 9, 5 * DATA_BYTES, 3), b"abc")])
    grow(files, [b"d"], term=9)
    files.close()
    again = opened(tmp_path)
    assert (again.begin, again.end, again.end_term) == (777, 778, 9)
    assert again.entry(777)[1] == b"abc"


# ------------------------------------------------------------------ term, vote, checkpoint


def test_term_and_vote_come_back(tmp_path: Path) -> None:
    state = LedgerState(tmp_path / "dledger-n0", LocalMedium())
    assert state.load_vote() == TermVote(0)
    for vote in (TermVote(1, "n0"), TermVote(2), TermVote(2, "n1")):
        state.save_vote(vote)
        assert LedgerState(tmp_path / "dledger-n0", LocalMedium()).load_vote() == vote
    (tmp_path / "dledger-n0/currterm").write_bytes(b"currTerm=")
    with pytest.raises(DamagedStore):
        state.load_vote()


def test_a_promise_that_was_kept_does_not_come_back_with_a_power_loss(tmp_path: Path) -> None:
    medium = FaultyMedium()
    state = LedgerState(tmp_path, medium)
    state.save_promise(LedgerPromise(3, 7))
    state.save_promise(None)
    for seed in range(8):
        assert LedgerState(tmp_path, medium.crash(seed)).load_promise() is None


def test_a_member_that_java_left_without_its_vote_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "currterm.bak").write_bytes(b"voteLeader=n0\ncurrTerm=3\n")
    with pytest.raises(DamagedStore, match="vote"):
        LedgerState(tmp_path, LocalMedium()).load_vote()


def test_a_checkpoint_never_says_more_than_is_on_disk(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, some_bodies(20))
    assert files.synced_position == 0
    files.save_checkpoint(12)
    assert files.synced_position == files.end_position
    assert files.state.load_checkpoint() == LedgerCheckpoint(19, 12)
    (tmp_path / "checkpoint").write_bytes(b"torn")
    assert files.state.load_checkpoint() == LedgerCheckpoint(-1, -1)


def test_bytes_that_are_no_entry_are_an_error_that_says_so(tmp_path: Path) -> None:
    files = opened(tmp_path)
    grow(files, [b"abc"])
    view = files.data.segments[0].tail.buffer
    assert isinstance(view, memoryview)
    view[0] = 9
    with pytest.raises(FormatError):
        files.entry(0)


def test_an_entry_that_the_full_disk_refuses_can_be_appended_later() -> None:
    """Whichever step finds no space, of the data or of the index: nothing of the entry is there."""
    medium = FaultyMedium()
    directory = Path("/ledger")
    files = LedgerFiles(directory, medium, data_file_bytes=16 * 1024, index_file_bytes=32 * 200)
    files.load()
    bodies = some_bodies(200)
    medium.capacity = medium.usage(directory).total - medium.usage(directory).free
    refused = 0
    while files.end + 1 < len(bodies):
        try:
            grow(files, [bodies[files.end + 1]])
        except DiskFull:
            refused += 1
            medium.capacity += 4096
    assert refused
    assert [body for _, body in contents(files)] == bodies
    files.close()
    again = LedgerFiles(directory, medium.kill(), data_file_bytes=16 * 1024, index_file_bytes=32 * 200)
    again.load()
    assert [body for _, body in contents(again)] == bodies
