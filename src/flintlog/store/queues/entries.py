"""The entries of a queue as a reader gets them: in ranges that lie in one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from flintlog.disk.segments.selected_range import SelectedRange
from flintlog.format.queue_entry import ExtensionUnit


class CqUnit(NamedTuple):
    """One entry as a reader sees it; `tags_code` is None when its extension unit is lost."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int | None
    batch_count: int = 1
    extension: ExtensionUnit | None = None


class EntryRange(ABC):
    """The entries from one place to the end of the data of ONE file; a context that keeps the file mapped.

    `first_queue_offset` is that of the first entry; iterating gives `CqUnit`s.
    """

    __slots__ = ("_selected", "first_queue_offset")

    def __init__(self, selected: SelectedRange, first_queue_offset: int) -> None:
        self._selected = selected
        self.first_queue_offset = first_queue_offset

    @property
    def view(self) -> memoryview:
        """The raw entries."""
        return self._selected.view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Allow the file to be unmapped; the view must not be used any more."""
        self._selected.release()

    @abstractmethod
    def __iter__(self) -> Iterator[CqUnit]: ...
