"""Verification of a ledger's own files: the index, term and vote, the checkpoint, the chain of entries."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import lines

from flintlog.checks.finding import ERROR, Finding
from flintlog.checks.finding_kinds import KINDS
from flintlog.format.ledger import (
    ENTRY_HEAD_SIZE,
    LedgerCheckpoint,
    TermVote,
    encode_ledger_checkpoint,
    encode_term_vote,
    parse_entry_head,
    parse_ledger_checkpoint,
)
from flintlog.maintenance.verify.verify import Verification, verify

Golden = Callable[[str], Path]
FILE_BYTES = 65536
RECORD = struct.Struct("!iqiqq")


class Member:
    """A copy of a golden store whose log is a ledger, with an index file that is not mostly a hole."""

    def __init__(self, case: Path, root: Path) -> None:
        self.root, self.directory = root, root / "dledger-n0"
        shutil.copytree(case / "store", root, ignore=shutil.ignore_patterns("index"))
        shutil.copytree(case / "store" / "index", root / "index")
        self.index = self.directory / "index" / ("0" * 20)
        self.index.parent.mkdir()
        with (case / "store/dledger-n0/index" / ("0" * 20)).open("rb") as file:
            self.index.write_bytes(file.read(1024 * RECORD.size))
        self.saved = parse_ledger_checkpoint((self.directory / "checkpoint").read_bytes())
        plain = list((root / "commitlog").glob("0*")) if (root / "commitlog").exists() else []
        self.begin = len(plain) * FILE_BYTES
        manifest = [line for line in lines(case / "manifest.jsonl") if line["physicalOffset"] >= self.begin]
        self.lines = manifest
        self.positions = [line["physicalOffset"] - ENTRY_HEAD_SIZE for line in manifest]
        self.sizes = [line["size"] + ENTRY_HEAD_SIZE for line in manifest]

    def data(self, position: int) -> Path:
        return self.directory / "data" / f"{position // FILE_BYTES * FILE_BYTES:020d}"

    def write(self, position: int, content: bytes) -> None:
        with self.data(position).open("r+b") as file:
            file.seek(position % FILE_BYTES)
            file.write(content)

    def read(self, position: int, size: int) -> bytes:
        return self.data(position).read_bytes()[position % FILE_BYTES :][:size]

    def write_index(self, index: int, content: bytes) -> None:
        with self.index.open("r+b") as file:
            file.seek(index * RECORD.size)
            file.write(content)

    def verify(self) -> Verification:
        return verify(self.root, threads=2)

    def found(self) -> list[Finding]:
        return self.verify().findings

    def only(self) -> Finding:
        (finding,) = self.found()
        assert finding.id in KINDS
        return finding


@pytest.fixture(params=["broker", "mixed"])
def member(request: pytest.FixtureRequest, golden: Golden, tmp_path: Path) -> Member:
    return Member(golden("ledger") / request.param, tmp_path / "store")


def test_the_files_of_java_are_whole(member: Member) -> None:
    answer = member.verify()
    assert member.found() == []
    assert not [note for note in answer.notes if "ledger" in note]


# ------------------------------------------------------------------ the index


def test_every_flipped_bit_in_an_index_record_is_found(member: Member) -> None:
    chance = random.Random(7)
    data = member.index.read_bytes()
    for _ in range(12):
        place = chance.randrange(len(member.positions) * RECORD.size)
        member.write_index(0, data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :])
        found = member.only()
        index = place // RECORD.size
        assert (found.id, found.file, found.offset) == ("wrong-ledger-index", str(member.index), index * RECORD.size)
        assert found.physical_offset == member.positions[index]
        assert f"entry {index}" in found.evidence


def test_records_that_the_index_lacks_are_one_finding(member: Member) -> None:
    member.write_index(40, bytes(5 * RECORD.size))
    found = member.only()
    assert (found.id, found.size) == ("missing-ledger-index", 5)
    assert "entries 40 to 44" in found.evidence


@pytest.mark.parametrize("is_file_left", [True, False])
def test_an_index_that_is_gone_is_one_finding(member: Member, is_file_left: bool) -> None:
    if is_file_left:
        member.index.write_bytes(bytes(1024 * RECORD.size))
    else:
        shutil.rmtree(member.index.parent)
    found = member.only()
    assert (found.id, found.size) == ("missing-ledger-index", len(member.positions))


def test_after_an_unclean_stop_the_last_files_may_lack_index_records(member: Member) -> None:
    (member.root / "abort").write_bytes(b"1")
    (member.root / "checkpoint").unlink()
    member.write_index(len(member.positions) - 3, bytes(3 * RECORD.size))
    answer = member.verify()
    assert not [finding for finding in answer.findings if "ledger" in finding.id]
    assert "the ledger's index lacks 3 entries; the next opening adds them" in answer.notes


def test_records_that_no_opening_reads_are_missed_after_an_unclean_stop_too(golden: Golden, tmp_path: Path) -> None:
    member = Member(golden("ledger") / "broker", tmp_path / "store")
    (member.root / "abort").write_bytes(b"1")
    assert member.positions[2] < FILE_BYTES  # in the first of four files
    member.write_index(2, bytes(RECORD.size))
    assert member.only().id == "missing-ledger-index"


def test_index_records_behind_the_last_entry_are_of_entries_that_were_given_up(member: Member) -> None:
    stop = len(member.positions)
    member.write_index(stop, RECORD.pack(1, member.positions[-1] + member.sizes[-1], 100, stop, 0))
    assert member.found() == []
    assert "the ledger's index has 1 records of entries that were given up" in member.verify().notes


def test_bytes_behind_the_index_that_are_no_record_are_found(member: Member) -> None:
    stop = len(member.positions)
    member.write_index(stop + 2, b"\x55" * 20)
    found = member.only()
    assert (found.id, found.offset) == ("wrong-ledger-index", (stop + 2) * RECORD.size)


# ------------------------------------------------------------------ entries


def test_every_flipped_bit_in_a_head_is_found(member: Member) -> None:
    chance = random.Random(11)
    for _ in range(24):
        entry = chance.randrange(1, len(member.positions) - 1)
        at = member.positions[entry] + chance.randrange(ENTRY_HEAD_SIZE)
        was = member.read(at, 1)
        member.write(at, bytes([was[0] ^ 1 << chance.randrange(8)]))
        found = {finding.id: finding for finding in member.found()}
        assert found.keys() & {"damaged-ledger-head", "damaged-range"}, (entry, at)
        for finding in found.values():
            # Where a term falls, either of the two entries may be the wrong one; the second is named.
            near = (member.positions[entry], member.positions[entry] + ENTRY_HEAD_SIZE, member.positions[entry + 1])
            assert finding.physical_offset in near or finding.id == "wrong-ledger-index", (entry, at, finding)
        member.write(at, was)
    assert member.found() == []


@pytest.mark.parametrize(("place", "name"), [(8, "index"), (16, "term")])
def test_a_head_out_of_order_is_named_once(member: Member, place: int, name: str) -> None:
    at = member.positions[50]
    head = parse_entry_head(member.read(at, ENTRY_HEAD_SIZE))
    member.write(at + place, struct.pack("!q", 1 << 40))
    chain = [finding for finding in member.found() if finding.id == "damaged-ledger-head"]
    assert [finding.physical_offset for finding in chain] == [at if name == "index" else member.positions[51]]
    assert chain[0].severity == ERROR
    assert f"entry {head.index - 1} of term" in chain[0].evidence or name == "term"


# ------------------------------------------------------------------ inner batches


@pytest.mark.parametrize("by", [-1, 1, 40])
def test_an_offset_that_no_inner_batch_explains_is_found(member: Member, by: int) -> None:
    """Java counts all messages of an inner batch, and after a start only its entry: anything else is damage."""
    batches = [line for line in member.lines if line["topic"] == "inner-batches" and line["queueId"] == 1]
    assert {"INNER_NUM" in line["properties"] for line in batches} == {True, False}
    victim = batches[len(batches) // 2]
    member.write(victim["physicalOffset"] + 20, struct.pack("!q", victim["queueOffset"] + by))
    found = {finding.id for finding in member.found()}
    assert found & {"queue-gap", "repeated-queue-offset"}
    assert "wrong-queue-entries" in found


# ------------------------------------------------------------------ what a truncation leaves


def _give_up(member: Member, count: int) -> None:
    """As DLedger leaves it: the last entries of a term that another leader's replaced, of which one more is there."""
    first = len(member.positions) - count
    for entry in range(first):
        position = member.positions[entry]
        member.write(position + 16, struct.pack("!q", 9))
        member.write_index(entry, RECORD.pack(1, position, member.sizes[entry], entry, 9))
    state = LedgerCheckpoint(first - 1, first - 1)
    (member.directory / "checkpoint").write_bytes(encode_ledger_checkpoint(state))
    (member.directory / "currterm").write_bytes(encode_term_vote(TermVote(9, "n1")))


def test_entries_that_a_truncation_gave_up_are_no_part_of_the_log(member: Member) -> None:
    shutil.rmtree(member.root / "consumequeue")
    shutil.rmtree(member.root / "batchconsumequeue")
    shutil.rmtree(member.root / "index")
    _give_up(member, 4)
    answer = member.verify()
    end = member.positions[-4]
    assert not [finding.id for finding in answer.findings if "ledger" in finding.id or "damaged-r" in finding.id]
    assert answer.max_offset == end
    assert f"the bytes after {end} are of entries that the ledger gave up" in answer.notes


def test_a_part_of_an_entry_that_was_given_up_is_no_torn_tail(member: Member) -> None:
    shutil.rmtree(member.root / "consumequeue")
    shutil.rmtree(member.root / "batchconsumequeue")
    shutil.rmtree(member.root / "index")
    _give_up(member, 1)
    member.write(member.positions[-1], bytes(60))
    answer = member.verify()
    assert not [finding.id for finding in answer.findings if "torn" in finding.id or "damaged-r" in finding.id]
    assert not [finding.id for finding in answer.findings if "ledger" in finding.id]
    assert answer.max_offset == member.positions[-1]


def test_committed_entries_are_not_taken_for_given_up(member: Member) -> None:
    _give_up(member, 4)
    (member.directory / "checkpoint").write_bytes(encode_ledger_checkpoint(member.saved))
    assert {finding.id for finding in member.found()} >= {"damaged-ledger-head"}


# ------------------------------------------------------------------ term, vote, checkpoint


@pytest.mark.parametrize("content", [None, b"", b"currTerm=x\nvoteLeader=n0\n", b"\xff\xfe", b"voteLeader=n0\n"])
def test_a_vote_that_is_lost_is_an_error(member: Member, content: bytes | None) -> None:
    path = member.directory / "currterm"
    path.unlink() if content is None else path.write_bytes(content)
    found = member.only()
    assert (found.id, found.severity, found.file) == ("damaged-ledger-vote", ERROR, str(path))


def test_a_term_below_the_logs_is_an_error(golden: Golden, tmp_path: Path) -> None:
    member = Member(golden("ledger") / "broker", tmp_path / "store")
    member.write(member.positions[-1] + 16, struct.pack("!q", 3))
    last = len(member.positions) - 1
    member.write_index(last, RECORD.pack(1, member.positions[-1], member.sizes[-1], last, 3))
    (member.directory / "currterm").write_bytes(encode_term_vote(TermVote(3, "n0")))
    assert member.found() == []
    (member.directory / "currterm").write_bytes(encode_term_vote(TermVote(2, "n0")))
    found = member.only()
    assert (found.id, found.severity) == ("damaged-ledger-vote", ERROR)
    assert "term is 2, and its log has entries of term 3" in found.evidence


@pytest.mark.parametrize("content", [None, b"", b"committedIndex=4\n", b"committedIndex=-7\nendIndex=3\n"])
def test_a_checkpoint_that_cannot_be_read_is_found(member: Member, content: bytes | None) -> None:
    path = member.directory / "checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    found = member.only()
    assert (found.id, found.file) == ("damaged-ledger-checkpoint", str(path))


def test_more_committed_than_there_is_is_an_error(member: Member) -> None:
    end = len(member.positions) - 1
    state = LedgerCheckpoint(end + 2, end + 2)
    (member.directory / "checkpoint").write_bytes(encode_ledger_checkpoint(state))
    found = member.only()
    assert (found.id, found.severity, found.size) == ("short-ledger", ERROR, 2)
    assert found.physical_offset == member.positions[-1] + member.sizes[-1]


def test_the_end_of_the_data_that_is_gone_is_found(member: Member) -> None:
    for entry in range(len(member.positions) - 3, len(member.positions)):
        member.write(member.positions[entry], bytes(member.sizes[entry]))
    found = {finding.id: finding for finding in member.found()}
    assert found.keys() >= {"short-ledger"}
    assert found.keys() <= {"short-ledger", "short-log", "damaged-checkpoint", "wrong-index-entry"}
    assert found["short-ledger"].size == 3


def test_the_remedy_for_a_lost_index_helps(golden: Golden, tmp_path: Path) -> None:
    from flintlog.disk.media.local import LocalMedium
    from flintlog.store.ledger.ledger_files import LedgerFiles

    member = Member(golden("ledger") / "broker", tmp_path / "store")
    member.write_index(7, b"\x01" * RECORD.size)
    assert member.only().id == "wrong-ledger-index"
    shutil.rmtree(member.index.parent)
    files = LedgerFiles(
        member.directory, LocalMedium(), data_file_bytes=FILE_BYTES, index_file_bytes=1024 * RECORD.size
    )
    files.load()
    files.close()
    assert member.found() == []
