"""A node's disk, as bad as a real one may be.

The fault model:

- What was written and not synced is in memory. A crash keeps any subset of it, in no order.
- What was synced stays. A cut is durable once it was asked for, and so are term and vote.
- Entries lie at positions, as in the data files. Recovery walks them from the first one on and stops where an entry is
  missing, has another index than the next, or an earlier term than the one before; it does not know what was meant.
- The committed index is saved now and then, and may be ahead of what the crash left.

Two of the shell's duties can be switched off: tails that are not zeroed stay on the medium, where recovery may find
them again; and term and vote may be written some time after what depends on them was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.replication.ledger_memory import MemoryLog

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.interface import HardState, Output, Truncation
from flintlog.replication.ledger.core.messages import Entry


@dataclass(frozen=True, slots=True)
class ShellRules:
    """What the shell owes to the core."""

    zero_tails: bool = True
    persist_before_sending: bool = True


class SimulatedDisk:
    """`log` is what the running node sees; the rest is what a crash would leave."""

    def __init__(self, file_size: int, random: Random, rules: ShellRules) -> None:
        self.log = MemoryLog(file_size)
        self.hard_state = HardState()
        self.committed = NO_INDEX
        self.generation = 0
        self._file_size = file_size
        self._random = random
        self._rules = rules
        self._medium: dict[int, Entry] = {}
        self._unsynced: list[Entry] = []
        self._head = 0

    @property
    def is_synced(self) -> bool:
        return not self._unsynced

    def apply(self, output: Output) -> None:
        """Cut and write, as a step asks for it."""
        if output.truncation is not None:
            self._truncate(output.truncation)
        self.log.apply(output)
        self._unsynced += output.entries
        self.generation = output.generation

    def sync(self, end: int, generation: int) -> bool:
        """A sync that began when the log ended with `end`; False if the log was cut since."""
        if generation != self.generation:
            return False
        for entry in self._unsynced:
            if entry.index <= end:
                self._write(entry)
        self._unsynced = [entry for entry in self._unsynced if entry.index > end]
        return True

    def crash(self) -> None:
        """Lose what was not synced, or not all of it, and recover."""
        for entry in self._unsynced:
            if self._random.random() < 0.5:
                self._write(entry)
        self._unsynced = []
        entries = self._recover()
        self.log = MemoryLog(self._file_size, entries, start=self._head)
        self.generation = 0
        if self._rules.zero_tails:
            self._medium = {entry.position: entry for entry in entries}

    def delete_before(self, index: int) -> None:
        """Retention: the log begins with `index` from now on."""
        for entry in self.log.entries():
            if entry.index < index:
                self._medium.pop(entry.position, None)
        self._unsynced = [entry for entry in self._unsynced if entry.index >= index]
        self._head = self.log.entry(index).position
        self.log.delete_before(index)

    def _truncate(self, truncation: Truncation) -> None:
        if truncation.restart_position is not None:
            self._medium, self._unsynced, self._head = {}, [], truncation.restart_position
            return
        dropped = [entry for entry in self._unsynced if entry.index > truncation.last_index]
        self._unsynced = [entry for entry in self._unsynced if entry.index <= truncation.last_index]
        last = self.log.entry(truncation.last_index)
        if self._rules.zero_tails:
            end = last.position + last.size
            self._medium = {place: entry for place, entry in self._medium.items() if place < end}
        else:
            for entry in dropped:
                self._write(entry)

    def _write(self, entry: Entry) -> None:
        """An entry's bytes reach the medium: whatever they touch is no entry any more."""
        end = entry.position + entry.size
        touched = [place for place, old in self._medium.items() if place < end and place + old.size > entry.position]
        for place in touched:
            del self._medium[place]
        self._medium[entry.position] = entry

    def _recover(self) -> list[Entry]:
        entries: list[Entry] = []
        position = self._head
        while True:
            entry = self._medium.get(position) or self._medium.get(-(-position // self._file_size) * self._file_size)
            if entry is None or (entries and not _follows(entries[-1], entry)):
                return entries
            entries.append(entry)
            position = entry.position + entry.size


def _follows(before: Entry, entry: Entry) -> bool:
    return entry.index == before.index + 1 and entry.term >= before.term
