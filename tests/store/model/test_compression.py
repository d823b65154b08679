"""Compressed bodies: the golden ones, a way back for every body, and nothing unpacked beyond the limit."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import BodyTooLarge, FormatError, InvalidConfig, InvalidMessage, MissingExtra
from flintlog.format.properties import parse_properties
from flintlog.format.record import BLANK_MAGIC, Record, parse_record
from flintlog.format.sys_flag import CompressionType, is_compressed
from flintlog.store.model.compression import Codec, compress, decompress

CODECS: tuple[Codec, ...] = get_args(Codec)
PLAIN = b'{"order":17,"region":"eu"}' * 40

# The same body from RocketMQ's CompressorFactory
FROM_ROCKETMQ = {
    0x101: "04224d1860707328000000ff0b7b226f72646572223a31372c22726567696f6e223a226575227d1a00ffffffe1"
    "50226575227d00000000",
    0x201: "28b52ffd0058140100d07b226f72646572223a31372c22726567696f6e223a226575227d0100ceef6a8e01010000",
    0x301: "785eab56ca2f4a492d52b23234d7512a4a4dcfcccf53b2524a2d55aaad1e9519951995196132003dbf4b00",
}


def records(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.rglob("commitlog/*")):
        data, position = path.read_bytes(), 0
        while int.from_bytes(data[position + 4 : position + 8], "big") not in (0, BLANK_MAGIC & 0xFFFFFFFF):
            record = parse_record(data, position)
            yield record
            position += record.size


def test_compressed_bodies_of_a_golden_store_unpack_to_the_bodies_that_were_sent(golden: Callable[[str], Path]) -> None:
    zipped = [record for record in records(golden("batch")) if record.topic == "Zipped"]
    assert zipped
    for record in zipped:
        assert is_compressed(record.sys_flag)
        plain = decompress(record.body, record.sys_flag)
        assert hashlib.sha256(plain).hexdigest() == parse_properties(record.properties)["plainSha256"]


@pytest.mark.parametrize("sys_flag", FROM_ROCKETMQ)
def test_what_rocketmq_packed(sys_flag: int) -> None:
    assert decompress(bytes.fromhex(FROM_ROCKETMQ[sys_flag]), sys_flag) == PLAIN


def test_no_codec_in_the_flag_means_zlib() -> None:
    assert decompress(bytes.fromhex(FROM_ROCKETMQ[0x301]), 0x1) == PLAIN


def test_zlib_gives_the_bytes_that_rocketmq_gives() -> None:
    assert compress(PLAIN, "zlib") == (bytes.fromhex(FROM_ROCKETMQ[0x301]), 0x301)


@pytest.mark.parametrize("codec", CODECS)
@given(body=st.binary(max_size=5000), level=st.integers(0, 9), times=st.integers(1, 100))
def test_every_body_comes_back(codec: Codec, body: bytes, level: int, times: int) -> None:
    packed, bits = compress(body * times, codec, level)
    assert decompress(packed, bits | 0x8, len(body) * times) == body * times


def test_a_body_that_is_not_compressed_is_returned_as_it_is() -> None:
    assert decompress(b"plain", 0x300) == b"plain"
    assert decompress(b"", 0x301) == b""


def test_lz4_blocks_are_independent_because_rocketmq_reads_no_others() -> None:
    packed, _ = compress(b"x" * 10_000_000, "lz4")
    assert lz4.frame.get_frame_info(packed)["block_linked"] is False


def test_consecutive_frames_are_one_body() -> None:
    for codec in ("lz4", "zstd"):
        first, bits = compress(PLAIN[:500], codec)
        assert decompress(first + compress(PLAIN[500:], codec)[0], bits) == PLAIN


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_stopped_at_the_limit_and_costs_little_memory(codec: Codec) -> None:
    packed, bits = compress(bytes(64_000_000), codec)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match="more than 1000000"):
            decompress(packed, bits, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_exactly_the_limit_is_allowed(codec: Codec) -> None:
    packed, bits = compress(PLAIN, codec)
    assert decompress(packed, bits, len(PLAIN)) == PLAIN
    with pytest.raises(BodyTooLarge):
        decompress(packed, bits, len(PLAIN) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_an_error(codec: Codec) -> None:
    packed, bits = compress(PLAIN, codec)
    for end in range(1, len(packed)):
        with pytest.raises(FormatError):
            decompress(packed[:end], bits)


@given(body=st.binary(min_size=1, max_size=200), kind=st.sampled_from(CompressionType))
def test_any_bytes_unpack_or_are_a_format_error(body: bytes, kind: CompressionType) -> None:
    with contextlib.suppress(FormatError):
        decompress(body, kind << 8 | 1, 100_000)


@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_damaged_bodies_unpack_or_are_a_format_error(data: st.DataObject, codec: Codec) -> None:
    packed, bits = compress(PLAIN, codec)
    damaged = bytearray(packed)
    damaged[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FormatError):
        decompress(bytes(damaged), bits, 100_000)


def test_a_promise_of_a_huge_content_is_not_believed() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(bytes(70_000)))
    packed[5:9] = b"\xff\xff\xff\x7f"
    with pytest.raises(FormatError):
        decompress(bytes(packed), 0x201, 100_000)


def test_unknown_codecs_and_levels_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="'brotli'"):
        compress(b"x", "brotli")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig):
        compress(b"x", "zlib", 10)
    with pytest.raises(FormatError):
        decompress(b"x", 0x401)


@pytest.mark.parametrize(("codec", "module"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_missing_package_names_its_extra(codec: Codec, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, bits = compress(PLAIN, codec)
    monkeypatch.setitem(sys.modules, module, None)
    for action in (lambda: compress(PLAIN, codec), lambda: decompress(packed, bits)):
        with pytest.raises(MissingExtra, match=rf"flintlog\[{codec}\]"):
            action()
