"""The small files beside a DLedger log: what a member may not forget, and how far it was.

    currterm                        checkpoint                      promised
    +---------------+               +-----------------------+       +--------------+
    | voteLeader=n0 |               | committedIndex=103    |       | endTerm=2    |
    | currTerm=3    |               | endIndex=105          |       | endIndex=105 |
    +---------------+               +-----------------------+       +--------------+

Lines of Java's properties text. `voteLeader` is empty as long as the member has voted for nobody in this term; -1 is
the index before the first. Java writes the lines in this order, reads them in any, and passes comments (`#`, `!`).

`promised` is ours, and there only while a member that gave up its log has not got a longer one: where that log ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError

_INT64_MAX: Final = 2**63 - 1
_MEMBER_ID = re.compile(r"[!-<>-~]*")
_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class TermVote:
    """The term a member is in, and whom it has voted for in it."""

    term: int
    vote: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The last entry there was, and the last that was known to be committed."""

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
    """What a `promised` file says."""
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
    """What a `currterm` file says."""
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
    """What a `checkpoint` file of a ledger says. Java may write more as committed than there is; so may this."""
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
