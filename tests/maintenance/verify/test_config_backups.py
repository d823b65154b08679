"""Config files that are empty, missing or say something wrong.

Where the `.bak` is good, an opening uses it, and so does a look.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.flips.scenes import inner_batch

from flintlog import DamagedStore, Message, StoreConfig, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify

SMALL = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A group that has consumed something, in a store that has saved its offsets twice."""
    root = tmp_path / "store"
    for _ in range(2):
        with open_store(root, SMALL) as opened:
            opened.put(Message("orders", b"x"))
            consumer = opened.consumer("billing", "orders", start="earliest", timeout_s=0)
            for message in consumer:
                consumer.acknowledge(message)
    assert (root / "config" / "consumerOffset.json.bak").stat().st_size
    return root


@pytest.mark.parametrize("harm", ["empty", "blank", "missing"])
def test_offsets_of_the_backup_are_used_and_the_loss_is_found(
    store: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    if harm != "missing":
        path.write_bytes(b"" if harm == "empty" else b" \n")
    (finding,) = verify(store).findings
    assert (finding.id, finding.file) == ("damaged-config", str(path))
    for command in (["ls", "groups"], ["offsets", "show"]):
        assert main.run([*command, str(store), "-o", "json"]) == ExitCode.FINE
        said = capsys.readouterr()
        assert [row["offset"] for row in json.loads(said.out)] == [1]
        assert ".bak is shown" in said.err
    with open_store(store, SMALL, read_only=True) as opened:
        assert opened.consumer_offsets.get("billing", "orders", 0) == 1
    repair(store)
    assert verify(store).findings == []
    with open_store(store, SMALL, read_only=True) as opened:
        assert opened.consumer_offsets.get("billing", "orders", 0) == 1


def test_an_empty_file_without_a_backup_is_one_that_was_never_finished(store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_bytes(b"")
    assert verify(store).findings == []


MISNAMED = (b"BatchCQ", b"BatchCR")
MISSING = (b'"batches":{', b'"catches":{')


@pytest.mark.parametrize(("damage", "is_refused"), [(MISNAMED, True), (MISSING, False)])
def test_batch_queues_that_topics_json_does_not_name_are_found(
    tmp_path: Path, damage: tuple[bytes, bytes], is_refused: bool
) -> None:
    """An opening with the same configuration is refused; a topic that the file does not list has the queues on disk."""
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("batches", attributes={"queue.type": "BatchCQ"})
        store.put(inner_batch(b"a", b"b")).check()
    assert verify(tmp_path, SMALL).findings == verify(tmp_path).findings == []
    path = tmp_path / "config" / "topics.json"
    path.write_bytes(path.read_bytes().replace(*damage))
    for config in (SMALL, None):
        (finding,) = verify(tmp_path, config).findings
        assert (finding.id, finding.file) == ("wrong-queue-type", str(path))
    declared = SMALL.with_changes(topic_queue_types={"batches": "BatchCQ"})
    assert verify(tmp_path, declared).findings == []
    if is_refused:
        with pytest.raises(DamagedStore, match="configured as SimpleCQ"):
            open_store(tmp_path, SMALL)
    else:
        with open_store(tmp_path, SMALL) as store:
            assert [(info.topic, info.type, info.max_offset) for info in store.queues()] == [("batches", "BatchCQ", 2)]


@pytest.mark.parametrize("has_backup", [True, False])
def test_a_config_file_that_parses_and_is_not_taken_is_found(tmp_path: Path, has_backup: bool) -> None:
    """An opening for writing is refused, unless the backup is good; a repair takes only a backup that is."""
    with open_store(tmp_path, SMALL) as store:
        store.groups.create("billing")
    path = tmp_path / "config" / "subscriptionGroup.json"
    right = path.read_bytes()
    path.write_bytes(right.replace(b'"groupName":"billing"', b'"groupNamf":"billing"'))
    path.with_name(f"{path.name}.bak").write_bytes(right if has_backup else path.read_bytes())
    if not has_backup:
        with pytest.raises(DamagedStore, match="groupName"):
            open_store(tmp_path, SMALL)
    (finding,) = verify(tmp_path).findings
    assert (finding.id, finding.file) == ("damaged-config", str(path))
    repair(tmp_path)
    assert (verify(tmp_path).findings == []) is has_backup
