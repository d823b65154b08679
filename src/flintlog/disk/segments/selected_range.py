"""A range of a segment that someone reads.

The segment is not destroyed while ranges of it are held, except by force after a long time; even then
the view stays valid, it only belongs to a file that is no longer there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self


class SelectedRange:
    """Bytes from the offset `base` on, held until `release` or the end of the `with` block."""

    __slots__ = ("_release", "base", "view")

    def __init__(self, release: Callable[[], None], base: int, view: memoryview) -> None:
        self._release: Callable[[], None] | None = release
        self.base = base
        self.view = view

    @property
    def size(self) -> int:
        return len(self.view)

    def release(self) -> None:
        """Let the segment go; a second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
