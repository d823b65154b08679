"""The files of a DLedger member: entries, the index that finds them, and the small files beside.

A data file, `data/<20 digits>`:

     0       4       8           16          24          32       36       40       44       48
    +-------+-------+-----------+-----------+-----------+--------+--------+--------+--------+------+
    | magic | size  | index     | term      | position  | chan-  | chain  | body   | body   | body |
    | 1     |       |           |           |           | nel, 0 | CRC, 0 | CRC, 0 | size   |      |
    +-------+-------+-----------+-----------+-----------+--------+--------+--------+--------+------+

    +-------+-----------+---------------------------+
    | magic | remaining | zeros                     |      a blank: nothing more in this file
    | -1    |           |                           |
    +-------+-----------+---------------------------+

An index file, `index/<20 digits>`; the record of entry i stands at i x 32:

     0       4           12      16          24          32
    +-------+-----------+-------+-----------+-----------+
    | magic | position  | size  | index     | term      |
    | 1     |           |       |           |           |
    +-------+-----------+-------+-----------+-----------+

Big-endian and signed. `size` counts the head too; `position` is the entry's own place in the log, from the start of the
first file there ever was. Java always writes the channel and both CRCs as 0, so a body has to guard itself: that of a
broker's entry is one commit log record, whose own physical offset is `position + 48`. An entry must leave 8 bytes free
after it in its file, for a blank.

The first two numbers distinguish an entry from a plain record (`flintlog.format.record`): the second number of a record
is its magic, and no entry has that size.

The small files hold the state that a member must not forget, as Java's properties text:

    currterm                        checkpoint                      promised
    +---------------+               +-----------------------+       +--------------+
    | voteLeader=n0 |               | committedIndex=103    |       | endTerm=2    |
    | currTerm=3    |               | endIndex=105          |       | endIndex=105 |
    +---------------+               +-----------------------+       +--------------+

`voteLeader` is empty until the member votes in this term; -1 is the index before the first. Java writes the lines in
this order, reads them in any, and passes over comments (`#`, `!`). `promised` is ours. It exists while a member that
gave up its log has not got a longer one, and says where that log ended.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import Buffer, check_room, pack
from flintlog.format.record import PHYSICAL_OFFSET_AT, parse_blank

ENTRY_MAGIC: Final = 1
ENTRY_MAGIC_BYTES: Final = ENTRY_MAGIC.to_bytes(4, "big")
ENTRY_BLANK_MAGIC: Final = -1
ENTRY_HEAD_SIZE: Final = 48
ENTRY_END_RESERVE: Final = 8
"""An entry must leave this much room after it in its file, for a blank."""
INDEX_RECORD_SIZE: Final = 32
NO_INDEX: Final = -1
"""DLedger's value for the beginning and the end of an empty ledger."""
MAX_ENTRY_SIZE: Final = 4 * 1024 * 1024
"""The most that Java's encoder takes, the head included."""

ENTRY_HEAD: Final = struct.Struct("!iiqqqiiii")
ENTRY_BLANK: Final = struct.Struct("!ii")
INDEX_RECORD: Final = struct.Struct("!iqiqq")
_I64 = struct.Struct("!q")

_INT64_MAX: Final = 2**63 - 1
_MEMBER_ID = re.compile(r"[!-<>-~]*")
_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class EntryHead:
    """Everything about an entry but its body."""

    index: int
    term: int
    position: int
    body_size: int
    channel: int = 0
    chain_crc: int = 0
    body_crc: int = 0

    @property
    def size(self) -> int:
        """How many bytes the entry takes, head and body."""
        return ENTRY_HEAD_SIZE + self.body_size

    @property
    def end(self) -> int:
        """The position after the entry."""
        return self.position + self.size

    @property
    def index_record(self) -> IndexRecord:
        """The index record of this entry."""
        return IndexRecord(self.position, self.size, self.index, self.term)


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """Where an entry lies."""

    position: int
    size: int
    index: int
    term: int


def encode_entry_head(head: EntryHead) -> bytes:
    """The 48 bytes before the body."""
    if not 0 <= head.body_size <= MAX_ENTRY_SIZE - ENTRY_HEAD_SIZE:
        raise FormatError(f"a body of {head.body_size} bytes", advice=f"an entry has at most {MAX_ENTRY_SIZE} bytes")
    place = (head.index, head.term, head.position)
    rest = (head.channel, head.chain_crc, head.body_crc, head.body_size)
    return pack(ENTRY_HEAD, ENTRY_MAGIC, head.size, *place, *rest)


def parse_entry_head(buffer: Buffer, place: int = 0) -> EntryHead:
    """The head at a place of the buffer; checks magic and sizes, not that the body is there."""
    check_room(buffer, place, ENTRY_HEAD_SIZE, "head")
    magic, size, index, term, position, channel, chain_crc, body_crc, body_size = ENTRY_HEAD.unpack_from(buffer, place)
    if magic != ENTRY_MAGIC:
        raise FormatError(f"no entry: {'a blank' if magic == ENTRY_BLANK_MAGIC else f'magic {magic}'}", offset=place)
    if body_size < 0 or size != ENTRY_HEAD_SIZE + body_size:
        raise FormatError(f"an entry of {size} bytes with a body of {body_size}", offset=place)
    if index < 0 or term < 0 or position < 0:
        raise FormatError(f"an entry with index {index}, term {term}, position {position}", offset=place)
    return EntryHead(index, term, position, body_size, channel, chain_crc, body_crc)


def encode_entry_blank(remaining: int) -> bytes:
    """The 8 bytes that say: nothing more in this file, `remaining` bytes counted from here. The rest is zeros."""
    if not ENTRY_END_RESERVE <= remaining <= 0x7FFF_FFFF:
        raise FormatError(f"a blank cannot stand for {remaining} bytes")
    return ENTRY_BLANK.pack(ENTRY_BLANK_MAGIC, remaining)


def parse_entry_blank(buffer: Buffer, place: int = 0) -> int | None:
    """How many bytes the blank at a place says remain, or None if no blank is there."""
    if not 0 <= place <= len(buffer) - ENTRY_BLANK.size:
        return None
    magic, remaining = ENTRY_BLANK.unpack_from(buffer, place)
    return remaining if magic == ENTRY_BLANK_MAGIC and remaining >= ENTRY_END_RESERVE else None


def size_at(buffer: Buffer, place: int) -> int:
    """The size that a record states, with DLedger's head if one is at the place."""
    first, second = ENTRY_BLANK.unpack_from(buffer, place)
    return int(second if first == ENTRY_MAGIC else first)


def blank_at(buffer: Buffer, place: int) -> int | None:
    """How many bytes the blank at a place says remain, DLedger's or a plain log's; None if no blank is there."""
    plain = parse_blank(buffer, place)
    return parse_entry_blank(buffer, place) if plain is None else plain


def encode_index_record(record: IndexRecord) -> bytes:
    """The 32 bytes of an index record."""
    return pack(INDEX_RECORD, ENTRY_MAGIC, record.position, record.size, record.index, record.term)


def parse_index_record(buffer: Buffer, place: int = 0) -> IndexRecord:
    """The index record at a place of the buffer."""
    check_room(buffer, place, INDEX_RECORD_SIZE, "index record")
    magic, position, size, index, term = INDEX_RECORD.unpack_from(buffer, place)
    if magic != ENTRY_MAGIC:
        raise FormatError(f"no index record: magic {magic}", offset=place)
    if size < ENTRY_HEAD_SIZE or position < 0 or index < 0 or term < 0:
        raise FormatError(f"an index record of {size} bytes at {position}, index {index}, term {term}", offset=place)
    return IndexRecord(position, size, index, term)


def seal_record(body: bytes, position: int) -> bytes:
    """Set a record's physical offset for an entry at this position."""
    place = PHYSICAL_OFFSET_AT
    return body[:place] + pack(_I64, position + ENTRY_HEAD_SIZE) + body[place + _I64.size :]


# ---------------------------------------------------------------------- term, checkpoint, promise


@dataclass(frozen=True, slots=True)
class TermVote:
    """The term a member is in, and the member that it voted for in it."""

    term: int
    vote: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The last entry, and the last one that was known to be committed."""

    end_index: int
    committed_index: int


@dataclass(frozen=True, slots=True)
class LedgerPromise:
    """The end of a log that was given up: entries up to there may count as this member's in its group."""

    end_term: int
    end_index: int


def encode_promise(promise: LedgerPromise) -> bytes:
    """The content of `promised`."""
    return f"endTerm={promise.end_term}\nendIndex={promise.end_index}\n".encode()


def parse_promise(content: bytes) -> LedgerPromise:
    """The content of a `promised` file."""
    lines = _parse_lines(content, ("endTerm", "endIndex"))
    return LedgerPromise(_number("endTerm", lines, least=0), _number("endIndex", lines, least=0))


def encode_term_vote(state: TermVote) -> bytes:
    """The content of `currterm`."""
    vote = state.vote or ""
    if not _MEMBER_ID.fullmatch(vote):
        raise FormatError(f"not the id of a member: {vote!r}")
    if not 0 <= state.term <= _INT64_MAX:
        raise FormatError(f"not a term: {state.term}")
    return f"voteLeader={vote}\ncurrTerm={state.term}\n".encode()


def parse_term_vote(content: bytes) -> TermVote:
    """The content of a `currterm` file."""
    lines = _parse_lines(content, ("currTerm", "voteLeader"))
    vote = lines["voteLeader"]
    if not _MEMBER_ID.fullmatch(vote):
        raise FormatError(f"not the id of a member: {vote!r}")
    return TermVote(_number("currTerm", lines, least=0), vote or None)


def encode_ledger_checkpoint(checkpoint: LedgerCheckpoint) -> bytes:
    """The content of `checkpoint`."""
    _check_checkpoint(checkpoint)
    return f"committedIndex={checkpoint.committed_index}\nendIndex={checkpoint.end_index}\n".encode()


def parse_ledger_checkpoint(content: bytes) -> LedgerCheckpoint:
    """The content of a ledger's `checkpoint`. Java may write a committed index after the end; so this accepts it."""
    lines = _parse_lines(content, ("endIndex", "committedIndex"))
    return LedgerCheckpoint(_number("endIndex", lines, least=-1), _number("committedIndex", lines, least=-1))


def _check_checkpoint(checkpoint: LedgerCheckpoint) -> None:
    for index in (checkpoint.end_index, checkpoint.committed_index):
        if not -1 <= index <= _INT64_MAX:
            raise FormatError(f"not an index: {index}")


def _parse_lines(content: bytes, names: tuple[str, ...]) -> dict[str, str]:
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise FormatError("not a properties file: a byte above 127", offset=error.start) from error
    found: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip(" \t\f")
        if not stripped or stripped[0] in "#!":
            continue
        name, equals, value = stripped.partition("=")
        if not equals:
            raise FormatError(f"not a line of a properties file: {stripped!r}")
        if name.rstrip() in found:
            raise FormatError(f"{name.rstrip()} is there twice")
        found[name.rstrip()] = value.strip(" \t\f")
    missing = [name for name in names if name not in found]
    if missing:
        raise FormatError(f"{' and '.join(missing)} is missing")
    return found


def _number(name: str, lines: dict[str, str], *, least: int) -> int:
    text = lines[name]
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= _INT64_MAX:
        raise FormatError(f"{name} is {text!r}, not a number of at least {least}")
    return int(text)
