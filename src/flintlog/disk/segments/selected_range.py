"""A range of a segment that a reader holds.

The segment is not destroyed while a range of it is held, except by force after a long time. Even then the view stays
valid; its file is only unlinked.
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
        """Release the segment; a second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
