"""The commit log of a store whose log is a ledger: a put becomes a proposal to the group.

    put lock: queue offset, record ──▶ propose ─────▶ the group ─────▶ committed ──▶ receipt
              (physical offset 0)                     seals it: physical offset = position + 48

Invariants. Queue offsets are assigned in the order in which records are proposed, and only while this member leads and
serves. A proposal that the group did not accept leaves a gap in the offsets. Then puts are refused until every proposal
was answered, the log is committed to its end and dispatched, and the offsets were taken from the queues again
(`serve`). Nothing is read from beyond the committed position.

`LedgerWait` completes a put. Until then its receipt has no place: `physical_offset` is a ticket, below -1.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, cast

from flintlog.checks.finding import Finding
from flintlog.disk.media.libc import scratch_memory
from flintlog.disk.media.medium import Medium
from flintlog.errors import InvalidConfig, InvalidMessage, PutFailed, StoreClosed
from flintlog.format.config_json import BATCH_TYPE, QUEUE_TYPE
from flintlog.format.ledger import ENTRY_END_RESERVE, ENTRY_HEAD_SIZE, MAX_ENTRY_SIZE
from flintlog.format.properties import encode_properties
from flintlog.format.topics import STATE_TOPIC
from flintlog.kernel import ClosedFor, FastDispatch, Moves, Tail
from flintlog.store.ledger.ledger_files import LedgerFiles
from flintlog.store.ledger.prepare import prepare_ledger
from flintlog.store.ledger.proposals import LedgerReceipts, Pending, ProposalAnswer, Proposer
from flintlog.store.log.log import AppendMany, BatchMark, Log, too_large
from flintlog.store.log.queue_offsets import QueueOffsets, apply_moves
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts, refused
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.clock import Milliseconds

_OK: Final = PutStatus.PUT_OK
_IN_DOUBT: Final = frozenset({PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, PutStatus.UNKNOWN_ERROR})
"""What a group answers when a message may be in its log or not."""
_TICKET_BASE: Final = -2
MAX_OUTSTANDING: Final = 8_000
MAX_OUTSTANDING_BYTES: Final = 48 * 1024 * 1024
"""Less than a node takes, so that it never refuses one proposal among others."""


class LedgerCommitLog(Log):
    """Proposes what is put; any thread may put. See the module for its invariants."""

    own_topics = frozenset({STATE_TOPIC})
    batch_refusal = "a closed batch needs a log of its own, and this one is its group's"

    def __init__(
        self,
        files: LedgerFiles,
        paths: StorePaths,
        medium: Medium,
        config: StoreConfig,
        fast_dispatch: FastDispatch,
        offsets: QueueOffsets,
        now_ms: Milliseconds,
    ) -> None:
        super().__init__(config, files.data, fast_dispatch, offsets, now_ms)
        self.files = files
        self.on_refused: Callable[[], None] = lambda: None
        """Called, from any thread, when a proposal left a gap in the queue offsets."""
        self.on_let_go: Callable[[int], bool] = lambda end: False
        """Gives up the files that end here or before; the node sets it, because it reads them too."""
        self.keep_from: Callable[[], int] = lambda: 0
        """From where on the group needs the log; the member sets it."""
        self.fast_put.close(ClosedFor.LEDGER)
        self._paths = paths
        self._medium = medium
        self._config = config
        self._proposer: Proposer | None = None
        self._tickets = itertools.count()
        self._pending: dict[int, Pending] = {}
        self._outstanding: dict[int, int] = {}  # the bytes of each put that was proposed and not answered
        self._outstanding_bytes = 0
        self._gate = threading.Lock()
        self._scratch = Tail(bytearray(self._scratch_size), 0)
        self._max_body = min(self.segments.segment_size - ENTRY_END_RESERVE, MAX_ENTRY_SIZE) - ENTRY_HEAD_SIZE

    # ------------------------------------------------------------------ opening

    def load(self, *, read_only: bool) -> Sequence[Finding]:
        """The log ends where the group has committed it, whatever follows."""
        if not read_only:
            prepare_ledger(self.segments, self._paths, self._config)
        self.files.load()
        self.segments.readable_limit = self.files.position_after(self.files.committed)
        return () if self.files.torn is None else (self.files.torn,)

    def note_writer(self, process: bytes) -> None:
        self._medium.make_directories(self._paths.own)
        self._medium.write(self._paths.writer, process)

    def was_others(self, *, clean: bool, stopped_at: int | None) -> bool:
        """RocketMQ, opening a member after a crash, dispatches what was not committed too.

        It leaves that in the queues when its leader cuts it off: what is committed in that place is then in no queue.
        """
        if clean:
            return stopped_at != self.segments.readable_limit
        writer = self._paths.writer
        noted = self._medium.read(writer) if self._medium.exists(writer) else None
        return self._medium.read(self._paths.abort) != noted

    def refuse_lost(self, directory: Path) -> None:
        """The group sends it again."""

    def end_at(self, end: int, keep_aside: Callable[[int], list[Path]] | None) -> list[Path]:
        """Only the group cuts what follows."""
        return []

    # ------------------------------------------------------------------ running

    def start(self) -> None:
        """Nothing is put before `serve`."""
        self._began_at = self.end_offset

    def serve(self, proposer: Proposer) -> None:
        """This member leads, and everything in its log is committed and dispatched: take puts."""
        with self.lock():
            self._proposer = proposer

    def pause(self) -> None:
        """Refuse puts until `serve`. A put under way is proposed to a node that no longer leads, which refuses it."""
        self._proposer = None

    def doubt(self) -> None:
        """It is unknown whether a put that must not be made twice is in the log: refuse puts until that is known."""
        self._proposer = None
        self.on_refused()

    @property
    def is_serving(self) -> bool:
        return self._proposer is not None

    @property
    def outstanding(self) -> int:
        """How many puts were proposed and not answered."""
        return len(self._outstanding)

    def close(self) -> None:
        with self.lock():
            self.pause()

    def close_held(self) -> None:
        self.pause()

    def sync(self) -> None:
        """A truncation must know of every sync, so the ledger's files make it."""
        self.files.sync()

    def settle(self) -> None:
        self.files.settle()

    def release(self) -> None:
        try:
            self.files.release()
        finally:
            self.segments.shut_down()

    def let_go(self, end: int) -> bool:
        return self.on_let_go(end)

    def needed_from(self) -> int | None:
        return self.keep_from()

    @property
    def end_offset(self) -> int:
        """The committed end: the leader decides where the next record goes."""
        return self.max_offset

    def visible_end(self) -> int:
        """What the group has committed."""
        return self.segments.max_offset

    # ------------------------------------------------------------------ what it does not take

    def check_topic_deletion(self) -> None:
        raise InvalidConfig(
            "a ledger's topics are not deleted: its members would not do it at the same place of the log",
            advice="its messages are deleted with the oldest files",
        )

    def check_queue_type(self, queue_type: str | None) -> None:
        if queue_type == BATCH_TYPE:
            raise InvalidConfig("a ledger's topics have simple queues", advice=f"leave {QUEUE_TYPE} out")

    def append_raw(self, offset: int, data: bytes) -> None:
        """A ledger's log grows by its group alone."""
        raise StoreClosed("the log of a ledger takes no bytes from outside")

    def mark_held(self) -> BatchMark:
        raise InvalidConfig(self.batch_refusal)

    # ------------------------------------------------------------------ putting

    def check_answered(self, receipt: Receipt) -> None:
        if receipt.status in _IN_DOUBT:
            self.doubt()
            raise PutFailed(f"the group has not said whether it stored a message: {receipt.status}", receipt=receipt)

    def _append_one(self, message: Message, queue_offset: int, capacity: int | None, moves: Moves) -> Receipt:
        proposer = self._proposer
        if proposer is None or self._is_full:
            return Receipt(PutStatus.SERVICE_NOT_AVAILABLE if proposer is None else PutStatus.OS_PAGE_CACHE_BUSY)
        now = self._now_ms()
        text = None if capacity is None else encode_properties(message.properties or {}, capacity)
        self._scratch.position = 0
        size = self._append(self._scratch, message, queue_offset, now, text)
        if not size:
            raise too_large()
        with memoryview(cast(bytearray, self._scratch.buffer)) as view:
            body = bytes(view[:size])
        self._check_sizes([size])
        host = message.store_host or self._store_host
        ticket = self._propose(proposer, [body], Pending(Future(), [size], queue_offset, now, host), moves)
        return Receipt(_OK, ticket, queue_offset, size, now, host)

    def _append_many(self, first: Message, append: AppendMany, most_bytes: int, count: int) -> Receipts:
        """One entry each, proposed together and answered as one."""
        with self.lock():
            proposer = self._proposer
            if proposer is None:
                return refused(PutStatus.SERVICE_NOT_AVAILABLE, count)
            if self._is_full:
                return refused(PutStatus.OS_PAGE_CACHE_BUSY, count)
            queue_offset, moves = self.offsets.plan((first.topic, first.queue_id), count)
            now = self._now_ms()
            scratch = Tail(scratch_memory(most_bytes), 0)
            offsets = append(scratch, queue_offset, now, None)
            if offsets is None:
                raise InvalidMessage("the batch does not fit into a segment", advice="make it smaller")
            sizes = [after - before for before, after in itertools.pairwise(offsets)]
            with memoryview(cast(memoryview, scratch.buffer)) as view:
                bodies = [bytes(view[start : start + size]) for start, size in zip(offsets, sizes, strict=False)]
            self._check_sizes(sizes)
            host = first.store_host or self._store_host
            ticket = self._propose(proposer, bodies, Pending(Future(), sizes, queue_offset, now, host), moves)
            return LedgerReceipts(_OK, [ticket] * count, sizes, queue_offset, now, host)

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        if max(sizes) > self._max_body:
            raise InvalidMessage(f"a record of {max(sizes)} bytes; a ledger's entry takes {self._max_body}")

    @property
    def _is_full(self) -> bool:
        return len(self._outstanding) >= MAX_OUTSTANDING or self._outstanding_bytes >= MAX_OUTSTANDING_BYTES

    def _propose(self, proposer: Proposer, bodies: Sequence[bytes], pending: Pending, moves: Moves) -> int:
        """Under the put lock: the order of proposals is that of their queue offsets.

        The offsets move first. If this is interrupted, the proposal is withdrawn and leaves a gap, like one that the
        group did not accept. One that cannot be withdrawn any more is answered, and outstanding until then. In both
        cases the offsets are taken from the queues again.
        """
        ticket = _TICKET_BASE - next(self._tickets)
        size = sum(map(len, bodies))
        try:
            pending.answer.add_done_callback(lambda done: self._answered(done, ticket, pending))
            apply_moves(moves)
            with self._gate:
                self._outstanding[ticket] = size
                self._outstanding_bytes += size
            self._pending[ticket] = pending
            proposer.propose(bodies, pending.answer)
        except BaseException:
            self._pending.pop(ticket, None)
            pending.answer.cancel()
            self.doubt()
            raise
        return ticket

    def _end(self, ticket: int) -> None:
        with self._gate:
            self._outstanding_bytes -= self._outstanding.pop(ticket, 0)

    def _answered(self, done: Future[ProposalAnswer], ticket: int, pending: Pending) -> None:
        self._end(ticket)
        outcome = None if done.cancelled() else done.result()
        if outcome is None or not outcome.is_written:
            # Not under the put lock: its holder may be waiting for this very thread to take a proposal.
            self._proposer = None
            self.on_refused()
        if outcome is not None:
            pending.answered(outcome)

    def take_pending(self, receipt: Receipt | Receipts) -> Pending:
        """The put that belongs to a receipt; a second call raises `KeyError`."""
        return self._pending.pop(receipt.physical_offset if isinstance(receipt, Receipt) else receipt.first_offset)
