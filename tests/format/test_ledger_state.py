"""`currterm` and `checkpoint` of a DLedger directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.ledger import (
    LedgerCheckpoint,
    TermVote,
    encode_ledger_checkpoint,
    encode_term_vote,
    parse_ledger_checkpoint,
    parse_term_vote,
)

_INDEX = st.integers(-1, 2**63 - 1)


def test_both_files_are_the_bytes_that_java_writes() -> None:
    assert encode_term_vote(TermVote(0, "n0")) == b"voteLeader=n0\ncurrTerm=0\n"
    assert encode_term_vote(TermVote(7)) == b"voteLeader=\ncurrTerm=7\n"
    assert encode_ledger_checkpoint(LedgerCheckpoint(105, 103)) == b"committedIndex=103\nendIndex=105\n"


def test_lines_may_come_in_any_order_with_comments_and_others_between() -> None:
    assert parse_term_vote(b"#Mon Nov 16\ncurrTerm = 3\n\nother=1\r\nvoteLeader=n1") == TermVote(3, "n1")
    assert parse_ledger_checkpoint(b"endIndex=-1\ncommittedIndex=-1\n") == LedgerCheckpoint(-1, -1)


@given(st.builds(TermVote, st.integers(0, 2**63 - 1), st.none() | st.from_regex(r"[a-z][0-9]{1,5}", fullmatch=True)))
def test_any_term_and_vote_comes_back(state: TermVote) -> None:
    assert parse_term_vote(encode_term_vote(state)) == state


@given(st.builds(LedgerCheckpoint, _INDEX, _INDEX))
def test_any_checkpoint_comes_back(checkpoint: LedgerCheckpoint) -> None:
    assert parse_ledger_checkpoint(encode_ledger_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"currTerm=3\n",
        b"voteLeader=n0\n",
        b"currTerm=-1\nvoteLeader=\n",
        b"currTerm=x\nvoteLeader=\n",
        b"currTerm=\nvoteLeader=\n",
        b"currTerm=3\ncurrTerm=4\nvoteLeader=\n",
        b"currTerm=9223372036854775808\nvoteLeader=\n",
        b"currTerm=3\nvoteLeader=a=b\n",
        b"currTerm=3\nvoteLeader=n0 n1\n",
        b"currTerm 3\nvoteLeader=\n",
        b"currTerm=\xff\nvoteLeader=\n",
        b"\x00" * 25,
    ],
)
def test_a_torn_or_strange_currterm_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_term_vote(content)


@pytest.mark.parametrize(
    "content", [b"", b"endIndex=3\n", b"endIndex=-2\ncommittedIndex=0\n", b"endIndex=3\ncommitted"]
)
def test_a_torn_or_strange_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_ledger_checkpoint(content)


@pytest.mark.parametrize(
    "state", [TermVote(-1), TermVote(2**63), TermVote(0, "n 0"), TermVote(0, "n\n0"), TermVote(0, "=")]
)
def test_a_state_that_java_could_not_read_is_not_written(state: TermVote) -> None:
    with pytest.raises(FormatError):
        encode_term_vote(state)
