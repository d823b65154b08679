"""A group of one that does what the test tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from flintlog import Store, StoreConfig
from flintlog.format.ledger import EntryHead
from flintlog.store.ledger.proposals import ProposalAnswer
from flintlog.store.model.message import PutStatus

PATIENCE_S = 20.0
CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
    enable_dledger_commit_log=True,
    dledger_self_id="n0",
    ledger_index_file_size=32 * 128,
)


class ScriptedGroup:
    """Writes what is proposed into the store's files; commits and answers when the test says so."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.port = store.replication.ledger
        self.term = 1
        self.asked: list[tuple[list[int], int, Future[ProposalAnswer]]] = []
        self.refusal: PutStatus | None = None
        self.is_quick = False
        """Whether everything is committed and answered at once."""

    def propose(self, bodies: Sequence[bytes], answer: Future[ProposalAnswer]) -> None:
        answer.set_running_or_notify_cancel()
        if self.refusal is not None:
            answer.set_result(ProposalAnswer(self.refusal))
            return
        files, positions = self.port.files, []
        for body in bodies:
            place = files.place(files.end_position, 48 + len(body))
            sealed = body[:28] + (place + 48).to_bytes(8, "big") + body[36:]
            files.append([(EntryHead(files.end + 1, self.term, place, len(body)), sealed)])
            positions.append(place)
        self.asked.append((positions, files.end, answer))
        if self.is_quick:
            self.commit()

    def commit(self, *, answered: bool = True) -> None:
        """Everything written so far, and those that wait for it are completed."""
        asked, self.asked = self.asked, []
        self.port.committed(self.port.files.end)
        for positions, _, answer in asked if answered else ():
            answer.set_result(ProposalAnswer(PutStatus.PUT_OK, positions, is_written=True))

    def lead(self) -> None:
        self.port.lead(self)
        until(lambda: self.port.is_serving)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
