"""Stores that were halted or damaged: we keep what the Java store keeps, and more where it loses more than it must."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import Line, config_of, lines
from tests.store.put.test_golden_replay import files

from flintlog import DamagedRecord, Store, WrongFileSize, open_store

KEEP_ALL = ["garbage", "nocheckpoint", "nocq", "nocqindex", "noindex", "stale", "zerolast"]


@pytest.fixture
def halted(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """A copy of the store as it was found, and the folder of its case."""

    def make(name: str) -> tuple[Path, Path]:
        case, _, variant = name.partition("/")
        folder = golden(case) / variant
        shutil.copytree(folder / "before" / "store", tmp_path / "store")
        return tmp_path / "store", golden(case)

    return make


def damage_of(case: Path, variant: str) -> Line:
    reported: Line = json.loads((case / variant / "damage.json").read_text())
    return reported


def assert_has(store: Store, reported: Line) -> None:
    message = store.message_at(reported["physicalOffset"])
    assert message is not None
    assert hashlib.sha256(message.record).hexdigest() == reported["recordSha256"]
    page = store.get(reported["topic"], reported["queueId"], reported["queueOffset"], 1)
    assert [found.physical_offset for found in page.messages] == [reported["physicalOffset"]]
    for key in [*message.keys, *filter(None, [message.uniq_key])]:
        at = message.store_timestamp
        found = store.query(reported["topic"], key, at - 1000, at + 1000, 64)
        assert message.physical_offset in [other.physical_offset for other in found]


def assert_queues_are_whole(store: Store, reported: list[Line]) -> None:
    last = {(line["topic"], line["queueId"]): line["queueOffset"] for line in reported}
    seen = {(info.topic, info.queue_id): (info.min_offset, info.max_offset) for info in store.queues()}
    assert seen == {key: (0, offset + 1) for key, offset in last.items()}


@pytest.mark.parametrize("name", ["crash", *[f"torn/{variant}" for variant in KEEP_ALL]])
def test_every_message_is_kept(name: str, halted: Callable[[str], tuple[Path, Path]]) -> None:
    path, case = halted(name)
    reported = lines(case / "manifest.jsonl")
    with open_store(path, config_of(case)) as store:
        for line in reported:
            assert_has(store, line)
        assert_queues_are_whole(store, reported)
        assert not store.recovery.clean
        last = reported[-1]
        assert store.recovery.log_end == last["physicalOffset"] + last["size"]


def test_a_half_written_last_record_is_cut_kept_aside_and_reported(
    halted: Callable[[str], tuple[Path, Path]],
) -> None:
    path, case = halted("torn/truncated")
    reported = lines(case / "manifest.jsonl")
    end = reported[-1]["physicalOffset"]
    torn = (path / "commitlog" / f"{end // 262144 * 262144:020d}").read_bytes()[end % 262144 :].rstrip(b"\0")
    with open_store(path, config_of(case)) as store:
        for line in reported[:-1]:
            assert_has(store, line)
        assert store.message_at(end) is None
        (found,) = [finding for finding in store.recovery if finding.id == "torn-tail"]
        assert (found.physical_offset, found.offset, found.size) == (end, end % 262144, len(torn))
        assert found.file is not None and found.file.endswith("00000000000000524288")
        assert found.kept_in is not None and Path(found.kept_in).read_bytes() == torn


@pytest.mark.parametrize("variant", ["garbage", "stale"])
def test_bytes_behind_the_last_record_are_cut_and_kept_aside(
    variant: str, halted: Callable[[str], tuple[Path, Path]]
) -> None:
    path, case = halted(f"torn/{variant}")
    end = damage_of(case, variant)["end"]
    with open_store(path, config_of(case)) as store:
        (found,) = [finding for finding in store.recovery if finding.id == "torn-tail"]
        assert found.physical_offset == end
        assert found.kept_in is not None and len(Path(found.kept_in).read_bytes()) == found.size > 400
        assert store.message_at(end) is None
    log = (path / "commitlog" / f"{end // 262144 * 262144:020d}").read_bytes()
    assert not any(log[end % 262144 :]), "what was cut must not come back to life"


def test_one_flipped_bit_costs_one_message(halted: Callable[[str], tuple[Path, Path]]) -> None:
    path, case = halted("torn/flip")
    reported = lines(case / "manifest.jsonl")
    lost = damage_of(case, "flip")["record"]
    with open_store(path, config_of(case)) as store:
        (line,) = [line for line in reported if line["physicalOffset"] == lost]
        for other in reported:
            if other is not line:
                assert_has(store, other)
        assert_queues_are_whole(store, reported)
        (found,) = [finding for finding in store.recovery if finding.severity == "error"]
        assert (found.id, found.physical_offset, found.size) == ("damaged-record", lost, line["size"])
        with pytest.raises(DamagedRecord, match=str(lost)):
            store.message_at(lost)
        with pytest.raises(DamagedRecord, match=f"go on at queue offset {line['queueOffset'] + 1}"):
            store.get(line["topic"], line["queueId"], line["queueOffset"], 1)
    with open_store(path, config_of(case)) as store:
        assert store.recovery.clean
        for other in reported:
            if other is not line:
                assert_has(store, other)


def test_a_short_file_is_named_and_nothing_is_changed(halted: Callable[[str], tuple[Path, Path]]) -> None:
    path, case = halted("torn/shortfile")
    before = {(p, p.stat().st_mtime_ns if p.is_file() else 0) for p in path.rglob("*")}
    content = files(path)
    with pytest.raises(WrongFileSize, match="00000000000000786432"):
        open_store(path, config_of(case))
    assert files(path) == content
    assert {(p, p.stat().st_mtime_ns if p.is_file() else 0) for p in path.rglob("*")} == before


@pytest.mark.parametrize("name", ["crash", *[f"torn/{variant}" for variant in [*KEEP_ALL, "flip", "truncated"]]])
def test_a_read_only_opening_recovers_the_same_and_changes_nothing(
    name: str, halted: Callable[[str], tuple[Path, Path]]
) -> None:
    path, case = halted(name)
    content = files(path)
    with open_store(path, config_of(case), read_only=True) as store:
        seen = (store.queues(), [f.id for f in store.recovery], store.recovery.log_end)
        messages = [store.get(q.topic, q.queue_id, 0).next_offset for q in store.queues()]
    assert files(path) == content
    with open_store(path, config_of(case)) as store:
        assert seen == (store.queues(), [f.id for f in store.recovery], store.recovery.log_end)
        assert messages == [store.get(q.topic, q.queue_id, 0).next_offset for q in store.queues()]


@pytest.mark.parametrize("name", ["crash", *[f"torn/{variant}" for variant in KEEP_ALL]])
def test_what_is_recovered_equals_a_rebuild_from_the_log(
    name: str, halted: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    path, case = halted(name)
    config = config_of(case)
    with open_store(path, config) as store:
        end = store.recovery.log_end
    rebuilt = tmp_path / "rebuilt"
    shutil.copytree(path / "commitlog", rebuilt / "commitlog")
    with open_store(rebuilt, config) as store:
        assert store.recovery.log_end == end
    assert files(path / "consumequeue") == files(rebuilt / "consumequeue")
    assert sorted(files(path / "index").values()) == sorted(files(rebuilt / "index").values())
