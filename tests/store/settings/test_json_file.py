"""A config file and its backup, through saves, crashes and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore
from flintlog.store.settings.json_file import JsonFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "delayOffset.json"


def open_file(path: Path) -> JsonFile:
    return JsonFile(path, LocalMedium())


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert open_file(path).load() is None
    assert open_file(path).save({"offsetTable": {1: 15}})
    assert open_file(path).load() == {"offsetTable": {1: 15}}
    assert path.read_bytes() == b'{\n\t"offsetTable":{\n\t\t1:15\n\t}\n}'


def test_the_backup_is_one_save_behind(path: Path) -> None:
    file = open_file(path)
    for number in range(3):
        file.save({"a": number})
    assert open_file(path).load() == {"a": 2}
    assert path.with_name("delayOffset.json.bak").read_bytes() == b'{\n\t"a":1\n}'


def test_the_same_content_is_not_written_again(path: Path) -> None:
    open_file(path).save({"a": 1})
    file = open_file(path)
    file.load()
    assert not file.save({"a": 1})
    assert not file.backup.exists()


@pytest.mark.parametrize("broken", [b"", b'{"a":', b"\x00\x00"], ids=["empty", "cut", "zeros"])
def test_a_broken_file_is_replaced_by_its_backup(path: Path, broken: bytes) -> None:
    file = open_file(path)
    file.save({"a": 1})
    file.save({"a": 2})
    path.write_bytes(broken)
    again = open_file(path)
    assert again.load() == {"a": 1}
    assert [finding.id for finding in again.findings] == ["config-restored"]
    again.save({"a": 3})
    assert again.backup.read_bytes() == b'{\n\t"a":1\n}', "a broken file must not become the backup"


def test_when_both_are_broken_nothing_is_touched(path: Path) -> None:
    file = open_file(path)
    file.save({"a": 1})
    file.save({"a": 2})
    path.write_bytes(b"{")
    file.backup.write_bytes(b"[")
    with pytest.raises(DamagedStore, match="neither this file nor its backup parses"):
        open_file(path).load()
    assert (path.read_bytes(), file.backup.read_bytes()) == (b"{", b"[")
