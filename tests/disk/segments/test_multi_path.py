"""Where the next file of a log with several paths goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.disk.segments.multi_path import PathChoice
from flintlog.errors import InvalidConfig

A, B, C = Path("/a"), Path("/b"), Path("/c")


def chosen(choice: PathChoice) -> list[Path]:
    return [choice.choose(number * 100, 100) for number in range(6)]


def test_files_rotate_through_the_paths_in_the_order_of_their_names() -> None:
    assert chosen(PathChoice([C, A, B])) == [A, B, C, A, B, C]


def test_read_only_paths_get_nothing_but_are_read() -> None:
    choice = PathChoice([A, B], read_only=[B, C])
    assert chosen(choice) == [A] * 6
    assert choice.all_paths == [A, B, C]


def test_full_paths_get_nothing_while_there_are_others() -> None:
    full = {A}
    choice = PathChoice([A, B, C], full_paths=lambda: full)
    assert chosen(choice) == [B, C, B, C, B, C]
    full |= {B, C}
    assert chosen(choice) == [A, B, C, A, B, C]


def test_a_log_without_a_writable_path_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        PathChoice([])
    with pytest.raises(InvalidConfig):
        PathChoice([A], read_only=[A]).choose(0, 100)
