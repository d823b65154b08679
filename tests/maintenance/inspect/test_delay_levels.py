"""Stores with delay levels of their own: their directory says so to readers without a configuration."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.maintenance.backup.backup import backup
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.inspect.delay_levels import format_levels
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify
from flintlog.store.options.values import DEFAULT_DELAY_LEVELS_MS
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.note_file import encode_note
from flintlog.store.settings.written_with import load_options
from flintlog.testing import SMALL_FILES, FakeClock

LEVELS = "7s 2h 3d"
CONFIG = SMALL_FILES.with_changes(services={"schedule"}, message_delay_level=LEVELS)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Five messages that wait at each level."""
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=FakeClock()) as opened:
        for number in range(15):
            opened.put(Message("orders", b"x", delay_level=number % 3 + 1)).check()
    return root


def times(root: Path) -> dict[tuple[int, int], int]:
    """When each waiting message is delivered, by level and queue offset."""
    found: dict[tuple[int, int], int] = {}
    for path in sorted((root / "consumequeue" / SCHEDULE_TOPIC).rglob("0*")):
        if path.is_file():
            for number, (_, size, time) in enumerate(struct.iter_unpack("!qiq", path.read_bytes()[: 20 * 100])):
                if size:
                    found[int(path.parent.name) + 1, number] = time
    return found


def test_a_healthy_store_has_no_findings(store: Path) -> None:
    assert verify(store).findings == []
    assert look_at(store).delay_levels_ms == CONFIG.delay_levels_ms


def test_levels_of_a_directory_without_a_note_follow_from_its_entries(store: Path) -> None:
    (store / "flintlog" / "options.json").unlink()
    assert look_at(store).delay_levels_ms[:3] == CONFIG.delay_levels_ms
    assert verify(store).findings == []


def test_a_queue_with_an_impossible_number_is_no_level(store: Path) -> None:
    (store / "flintlog" / "options.json").unlink()
    queues = store / "consumequeue" / SCHEDULE_TOPIC
    (queues / "2").rename(queues / str(2**31 - 2))  # as a record with a wrong bit in its queue id makes it
    assert look_at(store).delay_levels_ms[:2] == CONFIG.delay_levels_ms[:2]


@pytest.mark.parametrize("has_note", [True, False])
def test_a_repair_leaves_delivery_times_as_they_are(store: Path, has_note: bool) -> None:
    before = times(store)
    assert len(before) == 15
    if not has_note:
        (store / "flintlog" / "options.json").unlink()
    shutil.rmtree(store / "index", ignore_errors=True)
    (store / "checkpoint").unlink()
    report = repair(store)
    assert report.steps
    assert times(store) == before


def test_queues_that_are_gone_are_built_with_the_levels_of_the_note(store: Path) -> None:
    before = times(store)
    shutil.rmtree(store / "consumequeue")
    repair(store)
    assert times(store) == before


def test_levels_that_were_changed_are_neither_judged_nor_rewritten(store: Path) -> None:
    with open_store(store, CONFIG.with_changes(message_delay_level="9s 9s 9s"), clock=FakeClock()) as opened:
        for _ in range(3):
            opened.put(Message("orders", b"y", delay_level=1)).check()
    before = times(store)
    assert verify(store).findings == []
    (store / "checkpoint").unlink()
    repair(store)
    assert times(store) == before


@pytest.mark.parametrize("has_note", [True, False])
def test_a_restored_store_delivers_at_the_same_times(store: Path, tmp_path: Path, has_note: bool) -> None:
    if not has_note:
        (store / "flintlog" / "options.json").unlink()
    backup(store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert times(tmp_path / "restored") == times(store)
    assert verify(tmp_path / "restored").findings == []


def test_an_opening_without_a_configuration_has_the_levels_of_the_note(tmp_path: Path) -> None:
    from flintlog import StoreConfig

    config = StoreConfig(message_delay_level=LEVELS, mapped_file_size_commit_log=1 << 20)
    with open_store(tmp_path / "store", config):
        pass
    with open_store(tmp_path / "store") as opened:
        assert opened.config.message_delay_level == LEVELS


def test_a_damaged_delivery_time_is_found(store: Path) -> None:
    path = store / "consumequeue" / SCHEDULE_TOPIC / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20 + 19] ^= 4
    path.write_bytes(data)
    assert [finding.id for finding in verify(store).findings] == ["wrong-queue-entries"]


def test_a_note_that_names_its_options_as_earlier_builds_did_is_read(tmp_path: Path) -> None:
    medium = LocalMedium()
    paths = StorePaths.of(tmp_path, StoreConfig())
    paths.own.mkdir()
    paths.options.write_bytes(encode_note({"options": {"mapper_file_size_batch_consume_queue": 4600}}))
    assert load_options(paths, medium) == {"mapped_file_size_batch_consume_queue": 4600}


def test_levels_are_formatted_as_they_are_configured() -> None:
    assert format_levels(CONFIG.delay_levels_ms) == LEVELS
    assert format_levels(DEFAULT_DELAY_LEVELS_MS).split()[4:6] == ["1m", "2m"]
