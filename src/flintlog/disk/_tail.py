"""The growing end of a file, until the kernel brings its own."""

from __future__ import annotations


class Tail:
    """Where the next bytes go: `buffer[position]` has the offset `base + position`."""

    __slots__ = ("base", "buffer", "position")

    def __init__(self, buffer: memoryview, base: int, position: int = 0) -> None:
        self.buffer = buffer
        self.base = base
        self.position = position

    @property
    def capacity(self) -> int:
        return len(self.buffer)

    @property
    def end(self) -> int:
        return self.base + self.position

    def release(self) -> None:
        self.buffer = memoryview(b"")
