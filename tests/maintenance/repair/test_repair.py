"""Repairing golden stores that were damaged in ten ways, and worse: nothing found afterwards, nothing kept lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.verify.test_verify import TORN, ids, snapshot
from tests.store.golden_cases import config_of, lines
from tests.store.small_store import SMALL

from flintlog import Message, StoreInUse, open_store
from flintlog.checks.finding_kinds import KINDS
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.format.record import Record, body_crc, encode_record, parse_record, with_crc_property
from flintlog.maintenance.repair.lost_records import LOST_PROPERTY, filler, stand_in, stand_in_for_entry
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.repair.repair_plan import plan_steps
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]
Torn = Callable[[str], Path]

ACTIONS = {
    "flip": "stand-in",
    "garbage": "cut",
    "nocheckpoint": "checkpoint",
    "nocq": "queues",
    "nocqindex": "queues",
    "noindex": "index",
    "shortfile": "resize",
    "stale": "cut",
    "truncated": "cut",
    "zerolast": "move-away",
}
LOST = {"flip", "truncated"}


@pytest.fixture
def torn(golden: Golden, tmp_path: Path) -> Torn:
    """A copy of one damaged store."""

    def copy(variant: str) -> Path:
        shutil.copytree(golden("torn") / variant / "before" / "store", tmp_path / "store")
        return tmp_path / "store"

    return copy


def content(root: Path) -> dict[str, str]:
    """The digest of every file that a repair may not end with differently; index files have the time as their name."""
    reported: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith(("flintlog", "lock")):
            data = path.read_bytes()
            if name.startswith("index/"):
                name = f"index/{len([other for other in reported if other.startswith('index/')])}"
            reported[name] = hashlib.sha256(data).hexdigest()
    return reported


@pytest.mark.parametrize("variant", TORN)
def test_each_damage_is_planned_applied_and_gone(variant: str, torn: Torn, golden: Golden) -> None:
    root, config = torn(variant), config_of(golden("torn"))
    before = snapshot(root)
    plan = plan_repair(root, config)
    assert snapshot(root) == before, "a plan writes nothing"
    assert ACTIONS[variant] in {step.action for step in plan.steps}
    assert plan.steps[-1].action == "settle"
    assert not plan.left
    report = repair(root, config)
    assert report.left == []
    assert verify(root).findings == []
    assert not (root / "abort").exists()
    reported = lines(golden("torn") / "manifest.jsonl")
    with open_store(root, config_of(golden("torn")), read_only=True) as store:
        assert store.recovery.clean
        missing: set[int] = set()
        for line in reported:
            message = store.message_at(line["physicalOffset"])
            if message is None or hashlib.sha256(message.record).hexdigest() != line["recordSha256"]:
                missing.add(line["physicalOffset"])
    assert len(missing) == (variant in LOST)
    assert {lost.physical_offset for lost in plan.lost} == missing, "neither more nor less than what is gone"
    assert all(lost.topic is not None for lost in plan.lost)


def test_a_lost_message_is_named_and_its_place_says_so(torn: Torn, golden: Golden) -> None:
    root = torn("flip")
    place = json.loads((golden("torn") / "flip" / "damage.json").read_text())["record"]
    (line,) = [line for line in lines(golden("torn") / "manifest.jsonl") if line["physicalOffset"] == place]
    (lost,) = plan_repair(root).lost
    assert (lost.topic, lost.queue_id, lost.queue_offset) == (line["topic"], line["queueId"], line["queueOffset"])
    log = root / "commitlog" / f"{place // 262144 * 262144:020d}"
    was = log.read_bytes()[place % 262144 :][: line["size"]]
    report = repair(root)
    assert report.kept_in is not None
    (kept,) = (report.kept_in / "commitlog").iterdir()
    assert kept.read_bytes() == was
    with open_store(root, config_of(golden("torn"))) as store:
        (message,) = store.get(line["topic"], line["queueId"], line["queueOffset"], 1).messages
        assert message.properties[LOST_PROPERTY] == "body"
        assert not any(message.body)
        assert (message.store_timestamp, message.keys) == (line["storeTimestamp"], (line.get("keys") or "").split())


def test_an_unknown_size_is_reported_as_guessed(torn: Torn, golden: Golden) -> None:
    root = torn("nocqindex")
    reported = [note for note in plan_repair(root).notes if "--config" in note]
    assert [note.split()[0] for note in reported] == [
        "mapped_file_size_consume_queue",
        "max_hash_slot_num",
        "max_index_num",
    ]
    assert not any("--config" in note for note in plan_repair(root, config_of(golden("torn"))).notes)


def test_nothing_to_repair(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(golden("transaction") / "store", tmp_path / "store")
    before = snapshot(tmp_path / "store")
    assert main.run(["repair", str(tmp_path / "store"), "--plan"]) == ExitCode.FINE
    assert main.run(["repair", str(tmp_path / "store"), "--apply"]) == ExitCode.FINE
    assert "nothing to repair" in capsys.readouterr().out
    assert snapshot(tmp_path / "store") == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def kept_of(root: Path) -> list[Path]:
    """The folders beside a store with what repairs replaced; a file that is only made longer replaces nothing."""
    return [path for path in root.parent.iterdir() if path.name.startswith(f"{root.name}.repaired-")]


def break_everything(root: Path) -> None:
    """Queues that are wrong, an index without its middle, a torn config, a stray file, stray bytes, a wrong body."""
    log = root / "commitlog" / f"{524288:020d}"
    with log.open("r+b") as file:
        file.seek(137400 + 91)
        file.write(b"\xff")
        file.seek(664721 - 524288)
        file.write(os.urandom(300))
    queue = next(path for path in sorted((root / "consumequeue").rglob("*")) if path.is_file())
    with queue.open("r+b") as file:
        file.seek(3)
        file.write(b"\x07")
    (root / "commitlog" / "notes.txt").write_text("mine")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":{"ord')
    version = '"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000}'
    (root / "config" / "consumerOffset.json.bak").write_text(f'{{{version},"offsetTable":{{"orders@g":{{0:9999}}}}}}')
    for path in sorted((root / "index").iterdir())[1:]:
        path.unlink()


@pytest.mark.parametrize(
    ("variant", "least_steps"),
    [
        ("nocheckpoint", 16),
        ("flip", 5),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in TORN if name not in ("nocheckpoint", "flip")),
    ],
)
def test_a_repair_that_is_killed_at_any_step_ends_the_same_when_run_again(
    variant: str, least_steps: int, torn: Torn, tmp_path: Path
) -> None:
    source = torn(variant)
    if variant == "nocheckpoint":
        break_everything(source)
    whole = tmp_path / "whole"
    shutil.copytree(source, whole)
    steps: list[str] = []
    assert repair(whole, on_step=steps.append).left == []
    assert verify(whole).findings == []
    wanted = content(whole)
    assert len(steps) >= least_steps
    for number in range(len(steps)):
        root = tmp_path / f"killed-{number}"
        shutil.copytree(source, root)
        child = os.fork()
        if child == 0:
            left = [number]

            def kill(_step: str, left: list[int] = left) -> None:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

            repair(root, on_step=kill)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        report = repair(root)
        assert report.left == [], (number, steps[number])
        assert not (root / "flintlog" / "repair.json").exists()
        assert verify(root).findings == []
        assert content(root) == wanted, (number, steps[number])
        kept = kept_of(root)
        assert len(kept) in {1, len(kept_of(whole))}, (number, steps[number])
        for folder in (root, *kept):
            shutil.rmtree(folder)


def test_everything_that_was_replaced_is_kept(torn: Torn) -> None:
    root = torn("nocheckpoint")
    break_everything(root)
    before = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report = repair(root)
    assert report.kept_in is not None and report.kept_in.parent == root.parent
    kept = {str(path.relative_to(report.kept_in)): path for path in report.kept_in.rglob("*") if path.is_file()}
    for name, data in before.items():
        if not name.startswith(("consumequeue/", "index/", "config/", "commitlog/notes")):
            continue
        now = (root / name).read_bytes() if (root / name).exists() else None
        assert now == data or kept[name].read_bytes() == data, name
    assert (root / "config" / "consumerOffset.json").read_bytes().count(b"9999") == 0, "beyond the queue's end"


def test_a_stretch_of_zeros_is_filled_and_what_follows_is_kept(golden: Golden, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("plain") / "store", root)
    reported = [line for line in lines(golden("plain") / "manifest.jsonl") if line["physicalOffset"] < 1048576]
    lost = reported[40:44]
    start, stop = lost[0]["physicalOffset"] + 10, lost[-1]["physicalOffset"] + 50
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(start)
        file.write(bytes(stop - start))
    assert "damaged-range" in ids(verify(root))
    plan = plan_repair(root)
    assert {message.physical_offset for message in plan.lost} == {line["physicalOffset"] for line in lost}
    assert repair(root).left == []
    assert verify(root).findings == []
    with open_store(root, config_of(golden("plain"))) as store:
        for line in lost:
            (message,) = store.get(line["topic"], line["queueId"], line["queueOffset"], 1).messages
            assert LOST_PROPERTY in message.properties
        after = reported[44]
        (message,) = store.get(after["topic"], after["queueId"], after["queueOffset"], 1).messages
        assert hashlib.sha256(message.record).hexdigest() == after["recordSha256"]


def test_light_queues_and_batch_queues_are_built_again(golden: Golden, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("multi") / "store", root)
    queue = next(path for path in sorted((root / "consumequeue").rglob("*")) if path.is_file())
    queue.write_bytes(b"\x01" + queue.read_bytes()[1:])
    with open_store(golden("multi") / "store", config_of(golden("multi")), read_only=True) as store:
        wanted = store.queues()
    assert repair(root).left == []
    with open_store(root, config_of(golden("multi")), read_only=True) as store:
        assert store.queues() == wanted


def test_a_running_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b"x"))
        with pytest.raises(StoreInUse):
            repair(tmp_path / "store")
        assert main.run(["repair", str(tmp_path / "store"), "--apply"]) == ExitCode.STORE_IN_USE
    assert main.run(["repair", str(tmp_path / "store")]) == ExitCode.USAGE


def test_plan_and_apply_together_are_refused(torn: Torn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = torn("garbage")
    before = snapshot(root)
    for options in (["--plan", "--apply"], ["--apply", "--plan"]):
        assert main.run(["repair", str(root), *options]) == ExitCode.USAGE
        assert "not both" in capsys.readouterr().err
    assert snapshot(root) == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_owners_and_modes_stay(torn: Torn) -> None:
    root = torn("nocq")
    # Only root can give files away; for others at least the modes are tried.
    owner, group = (1234, 1235) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    for path in [root, *root.rglob("*")]:
        os.chown(path, owner, group)
        path.chmod(0o750 if path.is_dir() else 0o640)
    repair(root)
    for path in root.rglob("*"):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (owner, group), path
        assert status.st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_every_kind_of_finding_has_a_step_or_is_left(golden: Golden) -> None:
    from flintlog.checks.finding import Finding

    for kind in KINDS:
        finding = Finding(kind, "error", "", "", "commitlog/00000000000000000000", 0, 0, 0)
        steps, left = plan_steps([finding], restorable=frozenset({"commitlog/00000000000000000000"}))
        assert bool(steps) != bool(left), kind


@pytest.mark.parametrize("body_size", [0, 3, 19, 20, 21, 500])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_stand_in_has_the_size_of_what_it_stands_for(body_size: int, is_sealed: bool) -> None:
    body = b"x" * body_size
    record = Record(topic_bytes=b"t", body=body, body_crc=body_crc(body), properties=b"TAGS\x01a", sys_flag=0x301)
    record = with_crc_property(record) if is_sealed else record
    encoded = stand_in(record)
    assert len(encoded) == record.size
    read = parse_record(encoded)
    assert read.has_good_body and read.property_map()["TAGS"] == "a" and not any(read.body)
    assert read.sys_flag == 0 and parse_record(encode_record(record)).sys_flag == 0x301


def test_bytes_too_few_for_a_record_are_not_filled() -> None:
    assert filler(0, 60, 1) is None
    assert stand_in_for_entry("t", 0, 0, 0, 60, 1) is None
    assert parse_record(filler(7, 200, 1) or b"").physical_offset == 7


def test_repair_brings_no_message_of_a_deleted_topic_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL) as store:
        for topic in ("deleted", "made-again", "kept") * 20:
            store.put(Message(topic, b"old"))
        store.topics.delete("deleted")
        store.topics.delete("made-again")
        store.put(Message("made-again", b"new"))
        before = store.queues()
    shutil.rmtree(root / "consumequeue")
    assert repair(root, SMALL).left == []
    with open_store(root, SMALL, read_only=True) as store:
        assert store.queues() == before
    assert verify(root, SMALL).findings == []


def test_a_killed_repair_leaves_no_claim_about_queues_that_another_program_builds(tmp_path: Path) -> None:
    root, other = tmp_path / "store", tmp_path / "other"
    with open_store(root, SMALL) as store:
        placed = [store.put(Message("orders", b"lost")) for _ in range(20)]
    log = next((root / "commitlog").iterdir())
    log.write_bytes(log.read_bytes()[: placed[5].physical_offset].ljust(SMALL.mapped_file_size_commit_log, b"\0"))

    def kill(step: str) -> None:
        if step == "settle":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair(root, SMALL, on_step=kill)
    not_known = shutil.ignore_patterns("flintlog")  # to RocketMQ, which has the store next and does not stop cleanly
    shutil.copytree(root, other, ignore=not_known)
    with open_store(other, SMALL) as store:
        for _ in range(40):
            store.put(Message("orders", b"stored in place of what was lost"))
        store._engine.flushing.queue_flush.flush_all()  # type: ignore[union-attr]
        shutil.copytree(other, root, ignore=not_known, dirs_exist_ok=True)
    with open_store(root, SMALL) as store:
        assert store.recovery.findings == ()
        assert [queue.max_offset for queue in store.queues()] == [45]


def test_queues_are_built_of_the_kind_that_the_configuration_names(tmp_path: Path) -> None:
    root, config = tmp_path / "store", SMALL.with_changes(topic_queue_types={"orders": "SimpleCQ"})
    with open_store(root, config) as store:
        store.put(Message("orders", b"x")).check()
    topics = {"topicConfigTable": {"orders": {"topicName": "orders", "attributes": {"queue.type": "BatchCQ"}}}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    shutil.rmtree(root / "consumequeue")
    assert repair(root, config).left == []
    with open_store(root, config) as store:
        assert [queue.max_offset for queue in store.queues()] == [1]


@pytest.mark.parametrize("is_clean", [True, False])
def test_offsets_that_only_the_queues_know_are_not_given_again(tmp_path: Path, is_clean: bool) -> None:
    with open_store(tmp_path, SMALL) as store:
        for number in range(60):
            store.put(Message("orders", bytes(3000), queue_id=number % 2))
        given = store.max_offset("orders", 0)
    if not is_clean:
        (tmp_path / "abort").write_bytes(b"4711")
    _, *later = sorted((tmp_path / "commitlog").iterdir())
    assert later
    for path in later:  # the log has lost its end
        path.unlink()
    report = repair(tmp_path, SMALL)
    assert "short-log" in [message.why for message in report.lost]
    for more in range(2):
        with open_store(tmp_path, SMALL) as store:
            assert store.put(Message("orders", b"next")).queue_offset == given + more
    assert ids(verify(tmp_path, SMALL)) == {"queue-gap"}
