"""Verification of golden stores: whole ones are found whole, broken ones exactly as broken as they are."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store.golden_cases import config_of, lines, records
from tests.store.small_store import SMALL

from flintlog import Message, StoreConfig, open_store
from flintlog.checks.finding_kinds import KINDS
from flintlog.errors import DamagedStore
from flintlog.format.record import Record, body_crc, encode_record
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.verify.verify import Verification, verify
from flintlog.testing import temporary_store

Golden = Callable[[str], Path]

CLEAN = ["batch", "cqext", "delay", "multi", "plain", "transaction"]
TORN = {
    "flip": {"damaged-record"},
    "garbage": {"torn-tail"},
    "nocheckpoint": {"missing-checkpoint"},
    "nocq": {"missing-queues"},
    "nocqindex": {"missing-queues", "missing-index"},
    "noindex": {"missing-index"},
    "shortfile": {"wrong-file-size"},
    "stale": {"torn-tail"},
    "truncated": {"torn-tail"},
    "zerolast": {"empty-file"},
}


def ids(answer: Verification) -> set[str]:
    return {finding.id for finding in answer.findings}


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("mode", ["full", "quick"])
@pytest.mark.parametrize("name", [*(f"{case}/store" for case in CLEAN), "ha/master", "ha/slave", "crash/after/store"])
def test_a_cleanly_stopped_store_has_no_findings(name: str, mode: str, golden: Golden) -> None:
    case, _, rest = name.partition("/")
    answer = verify(golden(case) / rest, mode=mode)  # type: ignore[arg-type]
    assert answer.findings == []


@pytest.mark.parametrize("case", CLEAN)
def test_every_record_and_queue_is_checked(case: str, golden: Golden) -> None:
    answer = verify(golden(case) / "store")
    manifest = lines(golden(case) / "manifest.jsonl")
    found = list(records(golden(case) / "store"))
    assert answer.record_count == len(found) >= len({line["physicalOffset"] for line in manifest})
    assert answer.max_offset == found[-1].physical_offset + found[-1].size
    queues = [line for line in lines(golden(case) / "queues.jsonl") if line["kind"] == "queue"]
    assert answer.queue_count == len(queues)


@pytest.mark.parametrize("case", CLEAN)
def test_sizes_are_read_from_the_directory_as_the_config_has_them(case: str, golden: Golden) -> None:
    from flintlog.maintenance.inspect.store_files import look_at

    seen = look_at(golden(case) / "store").config
    config = config_of(golden(case))
    for name in ("mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num"):
        assert getattr(seen, name) == getattr(config, name)
    assert seen.enable_consume_queue_ext == config.enable_consume_queue_ext
    assert seen.topic_queue_types == config.topic_queue_types


@pytest.mark.parametrize("mode", ["full", "quick"])
@pytest.mark.parametrize("variant", TORN)
def test_each_damage_is_named_and_nothing_else(variant: str, mode: str, golden: Golden) -> None:
    answer = verify(golden("torn") / variant / "before" / "store", mode=mode)  # type: ignore[arg-type]
    assert ids(answer) == TORN[variant]
    assert len(answer.findings) == len(TORN[variant])
    assert any("not clean" in note for note in answer.notes)


def test_the_place_of_a_damage_is_named(golden: Golden) -> None:
    import json

    damage = json.loads((golden("torn") / "flip" / "damage.json").read_text())
    (found,) = verify(golden("torn") / "flip" / "before" / "store").findings
    assert (found.physical_offset, found.offset) == (damage["record"], damage["record"] % 262144)
    assert found.file is not None and found.file.endswith("commitlog/00000000000000524288")


def test_an_unclean_stop_alone_is_a_note(golden: Golden) -> None:
    answer = verify(golden("crash") / "before" / "store")
    assert answer.findings == []
    assert answer.notes == ["the last stop was not clean: the next opening recovers the store"]


def test_bytes_after_a_cut_of_java_are_no_finding(golden: Golden) -> None:
    for variant in ("flip", "garbage", "truncated", "nocheckpoint", "zerolast"):
        assert verify(golden("torn") / variant / "after" / "store").findings == []


def test_queues_that_java_did_not_build_again_are_found(golden: Golden) -> None:
    assert ids(verify(golden("torn") / "nocq" / "after" / "store")) == {"missing-queue-entries"}
    assert ids(verify(golden("torn") / "noindex" / "after" / "store")) == {"missing-index-entries"}


@pytest.mark.parametrize("case", ["multi", "plain", "cqext", "transaction"])
def test_small_ranges_and_many_threads_find_the_same(case: str, golden: Golden) -> None:
    for range_bytes in (3001, 10_007):
        answer = verify(golden(case) / "store", threads=4, range_bytes=range_bytes)
        assert answer.findings == []
        assert answer.record_count == len(list(records(golden(case) / "store")))
    for variant, expected in TORN.items():
        assert ids(verify(golden("torn") / variant / "before" / "store", threads=3, range_bytes=5000)) == expected


def test_nothing_is_changed(golden: Golden, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("torn") / "truncated" / "before" / "store", root)
    before = snapshot(root)
    verify(root)
    verify(root, mode="quick")
    assert snapshot(root) == before


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedStore, match="no store"):
        verify(tmp_path)


def test_progress_goes_to_the_end(golden: Golden) -> None:
    seen: list[tuple[int, int]] = []
    verify(golden("plain") / "store", progress=lambda done, total: seen.append((done, total)), range_bytes=100_000)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == 5 * 1048576


# ---------------------------------------------------------------------- one byte


def flips(path: Path, places: Iterator[int]) -> Iterator[int]:
    """Change one byte of a file after the other, each back before the next."""
    for place in places:
        with path.open("r+b") as file:
            file.seek(place)
            was = file.read(1)[0]
            file.seek(place)
            file.write(bytes([was ^ (1 << random.Random(place).randrange(8))]))
        yield place
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([was]))


@pytest.fixture
def store_copy(golden: Golden, tmp_path: Path) -> Callable[[str], Path]:
    def copy(case: str) -> Path:
        shutil.copytree(golden(case) / "store", tmp_path / case)
        return tmp_path / case

    return copy


@pytest.mark.parametrize("case", ["transaction", "multi", "cqext"])
def test_a_flipped_byte_in_a_queue_is_found(case: str, store_copy: Callable[[str], Path]) -> None:
    root = store_copy(case)
    chance = random.Random(case)
    queues = [path for path in sorted(root.glob("*consumequeue/*/*/*")) if any(path.read_bytes())]
    for path in chance.sample(queues, min(2, len(queues))):
        entry = 46 if "batch" in str(path) else 20
        used = -(-len(path.read_bytes().rstrip(b"\0")) // entry) * entry
        # The compacted offset and what follows it in a batch entry mean nothing yet.
        places = (place for place in (chance.randrange(used) for _ in range(6)) if entry == 20 or place % entry < 38)
        for place in flips(path, places):
            answer = verify(root, threads=1)
            assert any("queue" in finding.id for finding in answer.findings), (path, place)
            files = {Path(finding.file).name for finding in answer.findings if finding.file}
            assert files <= {path.name}, (path, place)
    assert verify(root).findings == []


def test_a_flipped_byte_in_an_index_file_is_found(store_copy: Callable[[str], Path]) -> None:
    root = store_copy("transaction")
    chance = random.Random(5)
    (path,) = (root / "index").iterdir()
    used = len(path.read_bytes().rstrip(b"\0"))
    slots_end = 40 + 4 * 500
    places = [chance.randrange(40) for _ in range(8)]
    places += [chance.randrange(40, slots_end) for _ in range(12)]
    places += [chance.randrange(slots_end, used) for _ in range(40)]
    for place in flips(path, iter(places)):
        answer = verify(root, threads=1)
        assert answer.findings, place
        assert all("index" in finding.id for finding in answer.findings), (place, answer.findings)
        assert len(answer.findings) <= 4, (place, answer.findings)
    assert verify(root).findings == []


def test_a_flipped_byte_in_the_log_is_found(store_copy: Callable[[str], Path]) -> None:
    root = store_copy("transaction")
    chance = random.Random(6)
    found = [record for record in records(root) if takes_queue_offset(record.sys_flag) and record.body]
    places: list[int] = []
    for record in chance.sample(found, 14):
        start = record.physical_offset
        body = start + 88 + (len(record.born_host) - 8) + (len(record.store_host) - 8)
        topic = body + len(record.body) + 1
        places += [start + chance.randrange(16), start + chance.randrange(20, 36)]
        places += [body + chance.randrange(len(record.body)), topic + chance.randrange(len(record.topic_bytes))]
    path = root / "commitlog" / f"{0:020d}"
    for place in flips(path, iter(places)):
        answer = verify(root, threads=1)
        assert answer.findings, place
    assert verify(root).findings == []


# ---------------------------------------------------------------------- stores of ours


def test_a_store_of_ours_is_whole_and_every_finding_has_an_explanation(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=300)
    with open_store(tmp_path / "store", config) as store:
        for number in range(600):
            store.put(Message("orders", b"x" * number, keys=[f"k{number}"], queue_id=number % 3))
    assert verify(tmp_path / "store").findings == []
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "orders" / "1")
    (tmp_path / "store" / "commitlog" / "notes.txt").write_text("x")
    answer = verify(tmp_path / "store")
    assert ids(answer) == {"missing-queue", "foreign-file"}
    assert all(finding.id in KINDS for finding in answer.findings)


def test_a_running_store_is_not_judged_at_its_end(tmp_path: Path) -> None:
    code = (
        "import sys; from flintlog import Message, open_store\n"
        "with open_store(sys.argv[1]) as store:\n"
        "    store.put(Message('t', b'x', keys=['k']))\n"
        "    print('ready', flush=True); sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        answer = verify(tmp_path / "store")
        other.stdin.write("\n")
    assert answer.findings == []
    assert any("in use" in note for note in answer.notes)


def test_bodies_that_hold_records_do_not_deceive() -> None:
    """Each body holds a whole record that claims to lie exactly where it lies."""
    with temporary_store() as store:
        for number in range(200):
            at = store.max_physical_offset + 88
            fake = Record(topic_bytes=b"fake", body=b"f" * 50, physical_offset=at, body_crc=body_crc(b"f" * 50))
            assert store.put(Message("t", encode_record(fake) + bytes(number % 90), keys=["k"]))
        store.shutdown()
        for range_bytes in (300, 1000):
            answer = verify(store.path, range_bytes=range_bytes)
            assert (answer.findings, answer.record_count) == ([], 200)


def test_a_note_of_which_both_copies_are_damaged_is_a_finding(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put_closed([Message("orders", b"x")], writer_id="etl")
    note = tmp_path / "flintlog" / "batches.json"
    data = note.read_bytes()
    note.write_bytes(data.replace(b"etl", b"et1", 1))
    assert verify(tmp_path).findings == []
    note.write_bytes(data.replace(b"etl", b"et1"))
    (finding,) = verify(tmp_path).findings
    assert (finding.id, finding.severity, finding.file) == ("damaged-note", "warning", str(note))


@pytest.mark.parametrize("name", ["00", "4294967296", "\u0660"])
def test_a_folder_that_is_no_queues_is_not_taken_for_one(name: str, tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"x", queue_id=0)).check()
    foreign = tmp_path / "consumequeue" / "orders" / name
    foreign.mkdir()
    (foreign / f"{0:020d}").write_bytes(bytes(2000))
    found = [Path(file.path).parent.name for queue in look_at(tmp_path, SMALL).queues.values() for file in queue.files]
    assert found == ["0"]
