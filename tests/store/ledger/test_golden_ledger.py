"""Stores whose log is a DLedger: read as the real `DLedgerCommitLog` answered, built again from the log alone."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import config_of, lines
from tests.store.read.test_golden_answers import answer
from tests.store.small_store import bytes_of

from flintlog import InvalidConfig, Message, PutFailed, StoreConfig, open_store
from flintlog.cli import main
from flintlog.errors import DamagedStore
from flintlog.format.ledger import LedgerCheckpoint, encode_ledger_checkpoint
from flintlog.maintenance.verify.verify import Mode, verify
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.replication.ha.node import HaNode
from flintlog.store.paths import find_member

Golden = Callable[[str], Path]
CASES = ["broker", "mixed"]
ELECTED = "elected"
_BIG = "index"  # 160 MiB, mostly a hole, and built again in no time


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, golden: Golden) -> Path:
    folder: Path = golden("ledger") / request.param
    return folder


def copied(case: Path, target: Path, *without: str) -> Path:
    """The case's store without some of its folders, and without the ledger's index."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        is_ledger = Path(folder).name.startswith("dledger-")
        return [name for name in names if name in without or (is_ledger and name == _BIG)]

    shutil.copytree(case / "store", target, ignore=left_out)
    return target


def check_answers(store_path: Path, case: Path, *, is_derived: bool = False) -> None:
    with open_store(store_path, config_of(case), read_only=True) as store:
        for ask in lines(case / "queries.jsonl"):
            given = answer(store, ask)
            assert given == {name: ask.get(name, given[name]) for name in given}, ask
        if not is_derived:
            assert store.recovery.findings == ()


def test_every_question_is_answered_as_java_did(case: Path) -> None:
    check_answers(case / "store", case)


def test_every_message_is_there_with_its_bytes(case: Path) -> None:
    reported = lines(case / "manifest.jsonl")
    with open_store(case / "store", config_of(case), read_only=True) as store:
        for line in reported:
            message = store.message_at(line["physicalOffset"])
            assert message is not None
            assert message.message_id == line["msgId"]
            assert hashlib.sha256(message.record).hexdigest() == line["recordSha256"]
        offsets = [offset for batch in store.scan() for offset in batch["physical_offset"].to_pylist()]
        assert offsets == [line["physicalOffset"] for line in reported]
        assert store.max_physical_offset == reported[-1]["physicalOffset"] + reported[-1]["size"]


def test_queues_and_index_are_built_again_from_the_log(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store", "consumequeue", "batchconsumequeue", "index", "checkpoint")
    (tmp_path / "store/dledger-n0/checkpoint").write_bytes((case / "store/dledger-n0/checkpoint").read_bytes())
    check_answers(store, case, is_derived=True)


def test_nobody_has_to_say_that_the_log_is_a_ledger_to_read_it(case: Path) -> None:
    config = config_of(case, enable_dledger_commit_log=False, dledger_self_id=None)
    with open_store(case / "store", config, read_only=True) as store:
        assert len(store.queues()) > 30
        assert sum(batch.num_rows for batch in store.scan()) > 400


def test_a_ledger_opens_by_its_path_as_what_it_is(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store")
    with open_store(store) as opened:
        assert (opened.config.enable_dledger_commit_log, opened.config.dledger_self_id) == (True, "n0")
        assert opened.config.mapped_file_size_commit_log == 65536
        assert sum(batch.num_rows for batch in opened.scan()) == len(lines(case / "manifest.jsonl"))
        end = opened.max_physical_offset
        with pytest.raises(PutFailed, match="dledger_peers"):
            opened.put(Message("orders", b"no group takes it"))
        assert opened.max_physical_offset == end
    assert (store / "commitlog").exists() == (case / "store/commitlog").exists()


def test_a_member_that_has_no_files_here_is_refused_beside_one_that_has(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store")
    before = bytes_of(store)
    with pytest.raises(InvalidConfig, match="dledger_self_id is n7, and the files are those of n0"):
        open_store(store, config_of(case, dledger_self_id="n7"))
    assert bytes_of(store) == before


def test_a_ledger_is_no_master(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store")
    before = bytes_of(store)
    with pytest.raises(InvalidConfig, match="a ledger"):
        HaNode(store, StoreConfig()).start()
    assert bytes_of(store) == before


def test_what_is_not_committed_is_not_shown(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store")
    reported = lines(case / "manifest.jsonl")
    state = LedgerCheckpoint(len(reported) - 1, 99)
    (store / "dledger-n0/checkpoint").write_bytes(encode_ledger_checkpoint(state))
    first = (
        next(place for place, line in enumerate(reported) if line["topic"] == ELECTED) if "mixed" in str(case) else 0
    )
    shown = reported[: first + 100]
    with open_store(store, config_of(case), read_only=True) as opened:
        assert opened.max_physical_offset == shown[-1]["physicalOffset"] + shown[-1]["size"]
        assert opened.message_at(shown[-1]["physicalOffset"]) is not None
        assert opened.message_at(reported[first + 100]["physicalOffset"]) is None
        assert sum(batch.num_rows for batch in opened.scan()) == len(shown)
        for queue in opened.queues():
            page = opened.get(queue.topic, queue.queue_id, queue.min_offset, 100)
            assert all(message.physical_offset <= shown[-1]["physicalOffset"] for message in page.messages)


def test_a_damaged_body_costs_that_message_alone(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store", "consumequeue", "batchconsumequeue", "checkpoint")
    (store / "dledger-n0/checkpoint").write_bytes((case / "store/dledger-n0/checkpoint").read_bytes())
    reported = lines(case / "manifest.jsonl")
    victims = [line for line in reported[-60:] if line["size"] > 300][:1]
    (victim,) = victims
    _flip(store, victim["physicalOffset"] + 150)
    with open_store(store, config_of(case), read_only=True) as opened:
        assert {finding.id for finding in opened.recovery.findings} >= {"damaged-record"}
        assert sum(batch.num_rows for batch in opened.scan()) >= len(reported) - 1
        assert opened.message_at(reported[-1]["physicalOffset"]) is not None


def test_damage_at_the_very_end_takes_nothing_else_along(case: Path, tmp_path: Path) -> None:
    store = copied(case, tmp_path / "store", "consumequeue", "batchconsumequeue", "checkpoint")
    (store / "dledger-n0/checkpoint").write_bytes((case / "store/dledger-n0/checkpoint").read_bytes())
    last = lines(case / "manifest.jsonl")[-1]
    _flip(store, last["physicalOffset"] + 4)
    with open_store(store, config_of(case), read_only=True) as opened:
        assert opened.max_physical_offset == last["physicalOffset"] + last["size"]
        assert {finding.id for finding in opened.recovery.findings} >= {"damaged-range"}


def _flip(store: Path, physical_offset: int) -> None:
    path = store / "dledger-n0/data" / f"{physical_offset // 65536 * 65536:020d}"
    data = bytearray(path.read_bytes())
    data[physical_offset % 65536] ^= 0x10
    path.write_bytes(data)


# ------------------------------------------------------------------ looking without opening


@pytest.mark.parametrize("mode", ["full", "quick"])
def test_verify_finds_nothing_in_what_java_left(case: Path, mode: Mode) -> None:
    assert verify(case / "store", mode=mode).findings == []


def test_the_commands_read_a_ledger(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = min((case / "store/dledger-n0/data").iterdir())
    assert main.run(["info", str(case / "store"), "-o", "json"]) == 0
    assert '"log": 4' in capsys.readouterr().out
    assert main.run(["cat", str(case / "store"), "--limit", "1000", "-o", "json"]) == 0
    assert capsys.readouterr().out.count('"physical_offset"') == len(lines(case / "manifest.jsonl"))
    assert main.run(["dump", str(data), "--limit", "2", "-o", "json"]) == 0
    shown = capsys.readouterr().out
    assert '"ledger-head"' in shown
    assert '"record"' in shown


def test_a_ledger_is_not_repaired(case: Path) -> None:
    from flintlog.maintenance.repair.repair import repair

    with pytest.raises(InvalidConfig, match="ledger"):
        repair(case / "store")


def test_the_log_of_a_ledger_is_found_as_one(case: Path) -> None:
    (log,) = find_logs((str(case / "store"),))
    reported = lines(case / "manifest.jsonl")
    assert [file.base for file in log.files] == [0, 65536, 131072, 196608]
    assert find_end(log) == reported[-1]["physicalOffset"] + reported[-1]["size"]


def test_two_members_in_one_directory_are_an_error(tmp_path: Path) -> None:
    from flintlog.disk.media.local import LocalMedium

    for member in ("n0", "n1"):
        (tmp_path / f"dledger-{member}/data").mkdir(parents=True)
        (tmp_path / f"dledger-{member}/data" / ("0" * 20)).write_bytes(bytes(100))
    with pytest.raises(DamagedStore, match="n0, n1"):
        find_member(tmp_path, LocalMedium())
