"""The files of a log from a directory listing."""

from __future__ import annotations

import pytest

from flintlog.derive.log_files import log_files
from flintlog.errors import DamagedStore


@pytest.mark.parametrize(
    ("bases", "reported"), [((0, 200), "bytes 100 to 200 are missing"), ((0, 101, 200), "bytes 100 to 101 are missing")]
)
def test_a_gap_is_reported_with_its_bytes(bases: tuple[int, ...], reported: str) -> None:
    with pytest.raises(DamagedStore, match=reported):
        log_files([(f"{base:020d}", 100) for base in bases])


def test_a_file_inside_of_another_is_no_gap() -> None:
    with pytest.raises(DamagedStore, match="begins inside of the one before it"):
        log_files([(f"{base:020d}", 100) for base in (0, 50)])
