"""Message bodies as RocketMQ's clients compress them.

The sys flag says whether a body is compressed and how: ZLIB (a zlib stream), LZ4 (the frame format with independent
blocks: RocketMQ's reader knows no others) or ZSTD (frames). A body may come from an untrusted producer, so it is never
unpacked beyond a limit, whatever its headers say: it is unpacked in small steps, and the first step over the limit
raises.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

from flintlog.errors import BodyTooLarge, FormatError, InvalidConfig, InvalidMessage, MissingExtra
from flintlog.format.sys_flag import CompressionType, compression_type, is_compressed, with_compression

if TYPE_CHECKING:
    from types import ModuleType

DEFAULT_LIMIT_BYTES: Final = 64 * 1024 * 1024
DEFAULT_LEVEL: Final = 5
"""RocketMQ's `compressLevel`."""

_STEP_BYTES = 1024 * 1024
# A ZSTD block of 4 bytes can stand for 128 KiB
_ZSTD_MAX_EXPANSION = 32 * 1024

Codec = Literal["zlib", "lz4", "zstd"]


def compress(body: bytes, codec: Codec, level: int = DEFAULT_LEVEL) -> tuple[bytes, int]:
    """The compressed body, and the bits to set in the sys flag.

    >>> packed, bits = compress(b"42 pieces" * 100, "zlib")
    >>> hex(bits), decompress(packed, bits) == b"42 pieces" * 100
    ('0x301', True)
    """
    if not 0 <= level <= 9:
        raise InvalidConfig(f"compression level {level}; it must be 0 to 9")
    try:
        kind = CompressionType[codec.upper()]
    except (KeyError, AttributeError) as error:
        raise InvalidMessage(f"no compression is called {codec!r}", advice="zlib, lz4 or zstd") from error
    return _PACKERS[kind](body, level), with_compression(0, kind)


def decompress(body: bytes, sys_flag: int, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The plain body of a message; the body itself if it is not compressed or empty.

    Raises BodyTooLarge if it unpacks to more than `limit_bytes`, FormatError if it is no compressed body.
    """
    if not is_compressed(sys_flag) or not body:
        return body
    kind = compression_type(sys_flag)
    pieces: list[bytes] = []
    size = 0
    for piece in _UNPACKERS[kind](body, limit_bytes):
        size += len(piece)
        if size > limit_bytes:
            raise BodyTooLarge(
                f"a body of {len(body)} bytes unpacks to more than {limit_bytes}", advice="allow a higher limit"
            )
        pieces.append(piece)
    return b"".join(pieces)


def _extra(module: str, extra: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{extra} bodies need a package", advice=f"pip install 'flintlog[{extra}]'") from error


def _pack_zlib(body: bytes, level: int) -> bytes:
    return zlib.compress(body, level)


def _pack_lz4(body: bytes, level: int) -> bytes:
    frame = _extra("lz4.frame", "lz4")
    # RocketMQ ignores the level for LZ4
    packed: bytes = frame.compress(body, block_linked=False, store_size=False)
    return packed


def _pack_zstd(body: bytes, level: int) -> bytes:
    packed: bytes = _extra("zstandard", "zstd").ZstdCompressor(level=level).compress(body)
    return packed


def _unpack_zlib(body: bytes, limit_bytes: int) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    rest = body
    try:
        while not stream.eof:
            piece = stream.decompress(rest, _STEP_BYTES)
            rest = stream.unconsumed_tail
            if not piece and not rest and not stream.eof:
                raise _cut_short("ZLIB", body)
            yield piece
    except zlib.error as error:
        raise FormatError(f"a body of {len(body)} bytes is no ZLIB stream: {error}") from error


def _unpack_lz4(body: bytes, limit_bytes: int) -> Iterator[bytes]:
    frame = _extra("lz4.frame", "lz4")
    rest = body
    while True:
        stream = frame.LZ4FrameDecompressor()
        try:
            while not stream.eof:
                piece = stream.decompress(rest, _STEP_BYTES)
                rest = b""
                if not piece and not stream.eof and stream.needs_input:
                    raise _cut_short("LZ4", body)
                yield piece
        except (RuntimeError, EOFError) as error:
            raise FormatError(f"a body of {len(body)} bytes is no LZ4 frame: {error}") from error
        rest = stream.unused_data or b""
        if not rest:
            return


def _unpack_zstd(body: bytes, limit_bytes: int) -> Iterator[bytes]:
    zstandard = _extra("zstandard", "zstd")
    # Few enough bytes at a time that they cannot unpack to much more than the limit
    step = 64 + limit_bytes // _ZSTD_MAX_EXPANSION
    rest = memoryview(body)
    while True:
        stream = zstandard.ZstdDecompressor().decompressobj()
        while not stream.eof:
            if not rest:
                raise _cut_short("ZSTD", body)
            taken, rest = rest[:step], rest[step:]
            try:
                yield stream.decompress(taken)
            except zstandard.ZstdError as error:
                raise FormatError(f"a body of {len(body)} bytes is no ZSTD frame: {error}") from error
        rest = rest if not stream.unused_data else memoryview(bytes(stream.unused_data) + bytes(rest))
        if not rest:
            return


def _cut_short(name: str, body: bytes) -> FormatError:
    return FormatError(f"a {name} body of {len(body)} bytes ends too early")


_PACKERS: dict[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.ZLIB: _pack_zlib,
    CompressionType.LZ4: _pack_lz4,
    CompressionType.ZSTD: _pack_zstd,
}
_UNPACKERS: dict[CompressionType, Callable[[bytes, int], Iterator[bytes]]] = {
    CompressionType.ZLIB: _unpack_zlib,
    CompressionType.LZ4: _unpack_lz4,
    CompressionType.ZSTD: _unpack_zstd,
}
