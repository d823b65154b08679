from __future__ import annotations

import random
import zlib
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintlog.kernel import reference


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("TagA", 2598919), ("TopicA#k1", 1903240649), ("polygenelubricants", 0)]
)
def test_index_hash_is_never_negative(kernel: ModuleType, text: str, expected: int) -> None:
    assert kernel.index_hash(text) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text() | st.text(st.characters(categories=["Cs"])))
def test_any_text_has_one_hash(twin: ModuleType, text: str) -> None:
    assert twin.index_hash(text) == reference.index_hash(text)


def test_crc32_of_all_lengths_and_alignments(kernel: ModuleType) -> None:
    data = random.Random(7).randbytes(1200)
    for size in (*range(280), 511, 512, 513, 1023, 1100):
        start = size % 17
        part = data[start : start + size]
        assert kernel.crc32(part) == zlib.crc32(part) & 0x7FFFFFFF
        assert kernel.crc32(memoryview(data)[start : start + size]) == zlib.crc32(part) & 0x7FFFFFFF
