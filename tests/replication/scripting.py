"""Plays scripts: plain text, commands with what they lead to. What the commands are is said by a player.

A script opens with a comment that draws the logs. A block is a command, a line of four dashes, and what happened, up to
an empty line. Nothing moves by itself: messages wait until they are delivered, and clocks stand until they are moved.

    deliver [n0 n1]     everything that waits, or what goes between two, until all is quiet
    next n0 n1          only the first of what waits between two
    drop [n0 n1]        everything that waits is lost, or what goes between two
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DASHES = "----"
MOST_LETTERS = 1_000


@dataclass(frozen=True, slots=True)
class Letter:
    """Something on its way; `is_idle` ones are not worth a line."""

    source: str
    target: str
    text: str
    deliver: Callable[[], None]
    is_idle: bool = False


def play(script: str, player: Player) -> str:
    """The script with what really happened in the place of what it says."""
    parts = []
    for text, command in _blocks(script):
        lines = [] if command is None else player.do(command)
        parts.append(text if command is None else "\n".join([command, DASHES, *lines]))
    return "\n\n".join(parts) + "\n"


def _blocks(script: str) -> Iterator[tuple[str, str | None]]:
    for block in script.strip("\n").split("\n\n"):
        command, dashes, _ = f"{block}\n".partition(f"\n{DASHES}\n")
        yield block, command if dashes else None


class Player:
    """Does commands: `word arguments` is `_do_word(*arguments)`, which says what happens in `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.letters: deque[Letter] = deque()

    def do(self, command: str) -> list[str]:
        """A command, and the lines that tell what it did."""
        self.lines = []
        word, *arguments = command.split()
        getattr(self, f"_do_{word}")(*arguments)
        return self.lines

    def is_lost(self, letter: Letter) -> bool:
        """Whether something keeps this letter from arriving."""
        return False

    def deliver(self, *pair: str) -> None:
        """Hand over what waits, and what comes of it, until all is quiet."""
        delivered = 0
        while taken := self.take_letters(*pair):
            delivered += len(taken)
            assert delivered < MOST_LETTERS, "the nodes do not come to rest"
            for letter in taken:
                self._hand_over(letter)

    def _hand_over(self, letter: Letter) -> None:
        if self.is_lost(letter):
            return
        if not letter.is_idle:
            self.lines.append(letter.text)
        letter.deliver()

    def take_letters(self, *pair: str) -> list[Letter]:
        """Take what waits, or what goes between two, off the way."""
        taken = [letter for letter in self.letters if not pair or {letter.source, letter.target} == set(pair)]
        self.letters = deque(letter for letter in self.letters if letter not in taken)
        return taken

    def _do_deliver(self, *pair: str) -> None:
        self.deliver(*pair)

    def _do_next(self, *pair: str) -> None:
        first, *others = self.take_letters(*pair)
        self.letters.extendleft(reversed(others))
        self._hand_over(first)

    def _do_drop(self, *pair: str) -> None:
        self.take_letters(*pair)
