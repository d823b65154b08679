"""Two replicas: the same, one shorter than the other, diverged, damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import lines
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.maintenance.inspect.diff import diff

Golden = Callable[[str], Path]


def put(root: Path, bodies: list[bytes]) -> list[int]:
    clock = iter(range(1_700_000_000_000, 1_700_001_000_000))
    with open_store(root, SMALL, clock=lambda: next(clock)) as store:
        reported = [Message("orders", body, born_timestamp=1) for body in bodies]
        return [store.put(message).check().physical_offset for message in reported]


def test_a_master_and_its_slave_are_the_same(golden: Golden) -> None:
    found = diff(golden("ha") / "master", golden("ha") / "slave")
    assert (found.diverges_at, found.ahead) == (None, None)
    assert found.compared_to == found.a.end_offset == found.b.end_offset > 0
    assert main.run(["diff", str(golden("ha") / "master"), str(golden("ha") / "slave")]) == ExitCode.FINE


def test_the_shorter_log_lacks_messages_and_nothing_is_cut(tmp_path: Path) -> None:
    offsets = put(tmp_path / "a", [bytes([n]) * 900 for n in range(200)])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with open_store(tmp_path / "b", SMALL) as store:
        more = [store.put(Message("orders", b"more")).check().physical_offset for _ in range(7)]
    found = diff(tmp_path / "a", tmp_path / "b")
    assert (found.diverges_at, found.ahead) == (None, "B")
    assert (found.a.own_messages, found.b.own_messages) == (0, 7)
    assert found.b.first_own is not None and found.b.first_own["physical_offset"] == more[0] > offsets[-1]
    assert "lacks 7" in found.verdict


@pytest.mark.parametrize("place", [0, 1, 70, 150, 199])
def test_the_first_record_that_differs_is_named(place: int, tmp_path: Path) -> None:
    bodies = [bytes([n]) * 900 for n in range(200)]
    offsets = put(tmp_path / "a", bodies)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b")
    put(tmp_path / "b", [*bodies[:place], b"\xee" * 900, *bodies[place + 1 :], b"one more"])
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.diverges_at is not None and found.diverges_at == offsets[place]
    assert found.differs_at is not None and offsets[place] < found.differs_at < offsets[place] + 900
    assert (found.a.own_messages, found.b.own_messages) == (200 - place, 201 - place)
    assert main.run(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == ExitCode.FINDINGS


def test_a_damaged_replica_is_distinguished_from_one_that_diverged(golden: Golden, tmp_path: Path) -> None:
    shutil.copytree(golden("plain") / "store", tmp_path / "b")
    line = lines(golden("plain") / "manifest.jsonl")[1500]
    base = line["physicalOffset"] // 1048576 * 1048576
    with (tmp_path / "b" / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(line["physicalOffset"] - base + line["size"] // 2)
        was = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([was[0] ^ 4]))
    found = diff(golden("plain") / "store", tmp_path / "b")
    assert found.diverges_at == line["physicalOffset"]
    assert found.a.is_intact_there
    if not found.b.is_intact_there:
        assert "copy these bytes from A" in found.verdict
