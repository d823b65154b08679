"""Extension units, their addresses, and where a file of them ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.queue_entry import (
    UNIT_END_MARK,
    ExtensionUnit,
    encode_extension_address,
    encode_extension_unit,
    is_extension_address,
    parse_extension_address,
    parse_extension_unit,
    parse_extension_units,
)

_I64 = st.integers(-(2**63), 2**63 - 1)
_UNITS = st.builds(ExtensionUnit, _I64, _I64, st.binary(max_size=40))


def test_the_extension_vector() -> None:
    data = encode_extension_unit(ExtensionUnit(2598919, 1700000000000, b"\x0f"))
    assert data.hex() == "0015000000000027a8070000018bcfe5680000010f"
    assert encode_extension_unit(ExtensionUnit(1, 2)).hex() == "0014000000000000000100000000000000020000"


def test_addresses_cannot_be_mistaken_for_hashes() -> None:
    assert encode_extension_address(0) == -(2**63)
    assert encode_extension_address(40) == -(2**63) + 40
    assert parse_extension_address(-(2**63) + 40) == 40
    assert is_extension_address(-(2**31) - 1)
    assert not is_extension_address(-(2**31))
    assert encode_extension_address(9223372034707292159) == -(2**31) - 1
    assert parse_extension_address(-(2**31) - 1) == 9223372034707292159
    for offset in (-1, 9223372034707292160):
        with pytest.raises(FormatError):
            encode_extension_address(offset)
    for address in (-(2**31), -(2**63) - 1):
        with pytest.raises(FormatError):
            parse_extension_address(address)


@given(st.lists(_UNITS, max_size=5), st.sampled_from([b"", b"\x00", bytes(4), UNIT_END_MARK + b"\x07\x07"]))
def test_units_are_read_up_to_the_end_of_the_data(units: list[ExtensionUnit], rest: bytes) -> None:
    found = list(parse_extension_units(b"".join(map(encode_extension_unit, units)) + rest))
    assert [unit for _, unit in found] == units
    assert [position for position, _ in found] == [sum(unit.size for unit in units[:n]) for n in range(len(units))]


def test_a_unit_whose_sizes_disagree_is_refused() -> None:
    good = encode_extension_unit(ExtensionUnit(1, 2, b"bits"))
    for spoiled in (good[:-1], b"\x00\x17" + good[2:], b"\x00\x13" + good[2:], good[:18] + b"\xff\xff" + good[20:]):
        with pytest.raises(FormatError):
            parse_extension_unit(spoiled)
    with pytest.raises(FormatError):
        list(parse_extension_units(b"\x00\x01" + good[2:]))
    for unit in (ExtensionUnit(1, 2, bytes(32748)), ExtensionUnit(2**63, 0), ExtensionUnit(0, -(2**63) - 1)):
        with pytest.raises(FormatError):
            encode_extension_unit(unit)
    assert len(encode_extension_unit(ExtensionUnit(1, 2, bytes(32747)))) == 32767
