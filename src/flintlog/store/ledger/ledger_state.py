"""What a member of a ledger group may not forget, on disk: its term and vote, and how far its log was committed.

A vote that was given and forgotten elects two leaders in one term, so `save_vote` returns when the new content, and
its name, would survive a loss of power. Java deletes `currterm` before it renames the new one to it: a member that Java
left with a `.bak` alone has forgotten its vote, and is not opened.

The checkpoint only ever says less than is true: an entry that it calls committed is on disk.

A member without a log may have had one: it promises everything, until its group has filled it or is known to be new.
One that gives up its log because its group's begins further on remembers where it ended (`promised`): the group
may count on it for the entries up to there, so until it has more it votes as if it had them.
"""

from __future__ import annotations

from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.ledger import (
    LedgerCheckpoint,
    LedgerPromise,
    TermVote,
    encode_ledger_checkpoint,
    encode_promise,
    encode_term_vote,
    parse_ledger_checkpoint,
    parse_promise,
    parse_term_vote,
)

MAX_STATE_BYTES = 4096
MAX_TERM = 2**63 - 1
NOTHING = LedgerCheckpoint(-1, -1)
REFILL_ADVICE = (
    "move the ledger's directory away and start the member: it takes part once the group, led by another, has filled "
    "it again; keep what was moved until then, and if no other member has the messages restore them from a backup"
)


class LedgerState:
    """`currterm` and `checkpoint` of one member. One thread at a time may save either."""

    def __init__(self, directory: Path, medium: Medium) -> None:
        self._vote_path = directory / "currterm"
        self._checkpoint_path = directory / "checkpoint"
        self._promise_path = directory / "promised"
        self._directory = directory
        self._medium = medium

    def load_vote(self) -> TermVote:
        """The term and the vote; term 0 without a vote for a member that never took part."""
        path = self._vote_path
        if not self._medium.exists(path):
            if self._medium.exists(path.with_name("currterm.bak")):
                raise DamagedStore(
                    "the member's term and vote are lost, and only an older one is there",
                    path=path,
                    advice=REFILL_ADVICE,
                )
            return TermVote(0)
        try:
            return parse_term_vote(self._medium.read(path, MAX_STATE_BYTES))
        except FormatError as error:
            raise DamagedStore(
                f"the member's term and vote cannot be read: {error.what}", path=path, advice=REFILL_ADVICE
            ) from error

    def known_term(self) -> int:
        """The term, above which there can be no entry; any, where no term can be read: then no node is started."""
        try:
            found = self.load_vote()
        except DamagedStore:
            return MAX_TERM
        return found.term or MAX_TERM

    def save_vote(self, state: TermVote) -> None:
        """Write term and vote; durable when this returns."""
        self._medium.make_directories(self._directory)
        self._medium.replace(self._vote_path, encode_term_vote(state))

    def load_promise(self) -> LedgerPromise | None:
        """Where a log ended that was given up, if one was."""
        if not self._medium.exists(self._promise_path):
            return None
        try:
            return parse_promise(self._medium.read(self._promise_path, MAX_STATE_BYTES))
        except FormatError as error:
            raise DamagedStore(
                f"what the member promised cannot be read: {error.what}", path=self._promise_path
            ) from error

    def save_promise(self, promise: LedgerPromise | None) -> None:
        """Remember it, or nothing; durable when this returns."""
        if promise is not None:
            self._medium.make_directories(self._directory)
            self._medium.replace(self._promise_path, encode_promise(promise))
        elif self._medium.exists(self._promise_path):
            self._medium.remove(self._promise_path)
            # A power loss must not bring it back: the member would not vote, though its group counts on it.
            self._medium.sync_directory(self._directory)

    def load_checkpoint(self) -> LedgerCheckpoint:
        """The last checkpoint; one that cannot be read says nothing, as in Java."""
        path = self._checkpoint_path
        if not self._medium.exists(path):
            return NOTHING
        try:
            return parse_ledger_checkpoint(self._medium.read(path, MAX_STATE_BYTES))
        except FormatError:
            return NOTHING

    def save_checkpoint(self, checkpoint: LedgerCheckpoint) -> None:
        """Write the checkpoint; what it says must be durable before."""
        self._medium.make_directories(self._directory)
        self._medium.replace(self._checkpoint_path, encode_ledger_checkpoint(checkpoint))
