"""Scans that check the CRC over whole records, where records have one."""

from __future__ import annotations

from types import ModuleType

import pytest

from flintlog.format.record import Record, body_crc, encode_record, with_crc_property
from flintlog.kernel import Crc, ScanStop


def sealed(body: bytes = b"body", place: int = 0) -> bytes:
    record = Record(
        topic_bytes=b"t", body=body, body_crc=body_crc(body), physical_offset=place, properties=b"a\x011\x02"
    )
    return encode_record(with_crc_property(record))


PLAIN = encode_record(Record(topic_bytes=b"t", body=b"body", body_crc=body_crc(b"body"), properties=b"a\x011\x02"))


def reason(kernel: ModuleType, log: bytes, check: Crc) -> ScanStop:
    seen = kernel.scan(log, 0, len(log), 0, check_crc=check)
    decoded = kernel.decode(log, 0, len(log), 0, check_crc=check)
    assert (decoded.count, decoded.end, decoded.reason) == (seen.count, seen.end, seen.reason)
    stop: ScanStop = seen.reason
    return stop


@pytest.mark.parametrize("body", [b"", b"body", bytes(3000)])
def test_a_whole_record_matches(kernel: ModuleType, body: bytes) -> None:
    log = sealed(body) + sealed(body, len(sealed(body)))
    for check in Crc:
        assert reason(kernel, log, check) is ScanStop.LIMIT


def test_every_flipped_bit_is_seen(kernel: ModuleType) -> None:
    log = sealed()
    for bit in range(8 * len(log)):
        flipped = bytearray(log)
        flipped[bit // 8] ^= 1 << bit % 8
        assert reason(kernel, bytes(flipped), Crc.RECORD) is not ScanStop.LIMIT, f"bit {bit}"
        assert reason(kernel, bytes(flipped), Crc.FORCED) is not ScanStop.LIMIT, f"bit {bit}"


def test_a_record_without_one_is_damaged_only_where_it_must_have_one(kernel: ModuleType) -> None:
    assert reason(kernel, PLAIN, Crc.RECORD) is ScanStop.LIMIT
    assert reason(kernel, PLAIN, Crc.FORCED) is ScanStop.NO_RECORD_CRC


@pytest.mark.parametrize("left", range(20))
def test_a_half_written_crc_is_not_a_missing_one(kernel: ModuleType, left: int) -> None:
    log = sealed()
    torn = log[: len(log) - 20 + left] + bytes(20 - left)
    assert reason(kernel, torn, Crc.RECORD) is ScanStop.BAD_RECORD_CRC


def test_only_bodies_are_checked_by_default(kernel: ModuleType) -> None:
    log = sealed().replace(b"a\x011", b"a\x012")
    assert reason(kernel, log, Crc.BODY) is ScanStop.LIMIT
    assert reason(kernel, log, Crc.RECORD) is ScanStop.BAD_RECORD_CRC
    assert kernel.scan(log, 0, len(log), 0, check_crc=True).count == 1
