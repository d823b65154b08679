"""The checkpoint file."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, encode_checkpoint, parse_checkpoint

_I64 = st.integers(-(2**63), 2**63 - 1)


def test_a_checkpoint_has_six_numbers_and_zeros() -> None:
    data = encode_checkpoint(Checkpoint(1, 2, 3, 4, 5, 6))
    assert len(data) == CHECKPOINT_SIZE
    assert data[:48].hex() == "".join(f"{number:016x}" for number in range(1, 7))
    assert not any(data[48:])


def test_recovery_starts_three_seconds_before_the_earlier_time() -> None:
    assert Checkpoint(10_000, 8_000, 20_000).min_timestamp == 5_000
    assert Checkpoint(2_999, 8_000).min_timestamp == 0


@given(st.tuples(_I64, _I64, _I64, _I64, _I64, _I64))
def test_any_checkpoint_comes_back(fields: tuple[int, int, int, int, int, int]) -> None:
    assert astuple(parse_checkpoint(encode_checkpoint(Checkpoint(*fields)))) == fields


def test_a_checkpoint_that_does_not_fit_or_is_cut_is_refused() -> None:
    with pytest.raises(FormatError):
        encode_checkpoint(Checkpoint(2**63))
    with pytest.raises(FormatError):
        parse_checkpoint(bytes(47))
