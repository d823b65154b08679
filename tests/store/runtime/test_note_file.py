"""Notes of our own: what one wrong bit, or a whole wrong file, does to them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore, FormatError
from flintlog.store.runtime.note_file import NoteFile, Offset, Trust, decode_json, encode_note, parse_note


class Example(msgspec.Struct):
    """As large as the notes are."""

    end: Offset
    names: dict[str, int] = {}


EXAMPLE = Example(81920, {"etl": 7, "straße": 9})

NO_NOTES = {
    "nothing": b"",
    "half": b'{"end":',
    "no UTF-8": b'{"end":1,"names":{"\xff":1}}',
    "another shape": b"[1]",
    "too deep": b"[" * 100_000,
    "too deep inside": b'{"x":' * 100_000,
    "a huge number": b'{"end":' + b"9" * 5000 + b"}",
    "more than a long": b'{"end":%d}' % (1 << 63),
    "less than nothing": b'{"end":-1}',
    "a wrong checksum": b'{"end":1} 00000000\n',
    "two values": b'{"end":1}\n{"end":1}\n',
}


@pytest.fixture
def note(tmp_path: Path) -> NoteFile[Example]:
    return NoteFile(tmp_path / "flintlog" / "example.json", LocalMedium(), Example)


def test_what_was_saved_is_loaded(note: NoteFile[Example]) -> None:
    assert note.load().trust is Trust.MISSING
    note.save(EXAMPLE)
    assert note.load().checked == EXAMPLE
    note.remove()
    note.remove()
    assert note.load().trust is Trust.MISSING


def test_no_single_bit_changes_a_note() -> None:
    data = encode_note(EXAMPLE)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        assert parse_note(bytes(flipped), Example).checked == EXAMPLE


def test_damage_in_both_copies_is_no_unchecked_note() -> None:
    data = encode_note(EXAMPLE)
    line = len(data) // 2
    for place in range(8 * line):
        flipped = bytearray(data)
        for copy in (0, line + 1):
            flipped[copy + place // 8] ^= 1 << place % 8
        found = parse_note(bytes(flipped), Example)
        assert (found.trust, found.content) == (Trust.DAMAGED, None)


@pytest.mark.parametrize("length", range(0, 120, 7))
def test_a_part_of_a_note_is_checked_or_damaged(length: int) -> None:
    data = encode_note(EXAMPLE)[:length]
    assert parse_note(data, Example).trust in (Trust.CHECKED, Trust.DAMAGED)


@pytest.mark.parametrize("data", NO_NOTES.values(), ids=NO_NOTES)
def test_what_is_no_note_is_damaged_and_nothing_else_is_raised(note: NoteFile[Example], data: bytes) -> None:
    note.path.parent.mkdir()
    note.path.write_bytes(data)
    found = note.load()
    assert found.trust is Trust.DAMAGED
    assert found.problem


def test_a_damaged_note_that_its_owner_needs_is_refused(note: NoteFile[Example]) -> None:
    assert note.load_or_refuse("the example", "remove it").trust is Trust.MISSING
    note.save(EXAMPLE)
    assert note.load_or_refuse("the example", "remove it").content == EXAMPLE
    note.path.write_bytes(b"{")
    with pytest.raises(DamagedStore, match=r"the example is damaged: .*example\.json.*remove it"):
        note.load_or_refuse("the example", "remove it")


def test_a_note_of_an_earlier_version_has_no_checksum(note: NoteFile[Example]) -> None:
    note.path.parent.mkdir()
    note.path.write_bytes(b'{"end":5}')
    found = note.load()
    assert (found.trust, found.content, found.checked) == (Trust.UNCHECKED, Example(5), None)


@pytest.mark.parametrize("text", [b"\xff", b'"\xff"', b"[" * 100_000, "[" * 100_000, b"9" * 5000, b"", "{'a'}"])
def test_text_that_is_no_json_has_one_error(text: bytes | str) -> None:
    with pytest.raises(FormatError):
        decode_json(text, object)
