"""A member's directory that somebody else had last: its queues and index are built again from the log.

RocketMQ dispatches what was not committed when it opens a member after a crash; if its leader then cuts that off, the
queue keeps the entry, and what is committed in its place stands in no queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.replication.ledger_group import Group, bodies

from flintlog import Message
from flintlog.errors import DamagedRecord
from flintlog.format.names import encode_abort

BODIES = [b"%d" % number for number in range(50)]
WRONG = 30


def _left(group: Group, *, abort: bytes | None, has_marker: bool = True) -> Path:
    """A stopped member whose queue has a wrong entry, and what is said of the stop."""
    group.start()
    for number, body in enumerate(BODIES):
        group.put(Message("orders", body, keys=[f"k{number}"]))
    group.stop_all()
    root = group.root / "n0"
    queue = next((root / "consumequeue/orders/0").iterdir())
    with queue.open("r+b") as file:
        file.seek((WRONG - 1) * 20)
        before = file.read(20)
        file.write(before)
    if abort is not None:
        (root / "abort").write_bytes(abort)
    if not has_marker:
        (root / "flintlog/stop.json").unlink()
    return root


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path, "n0")
    try:
        yield group
    finally:
        group.stop_all()


def test_after_a_crash_of_somebody_else_only_the_log_is_believed(one: Group) -> None:
    _left(one, abort=encode_abort(4_000_000))
    one.start()
    assert bodies(one.leader) == BODIES
    assert [message.body for message in one.leader.store.query("orders", "k30")] == [b"30"]


def test_after_a_clean_stop_of_somebody_else_only_the_log_is_believed(one: Group) -> None:
    _left(one, abort=None, has_marker=False)
    one.start()
    assert bodies(one.leader) == BODIES


@pytest.mark.parametrize("is_clean", [True, False])
def test_after_a_stop_of_ours_queues_are_believed(one: Group, is_clean: bool) -> None:
    one.changes["message_index_enable"] = False  # after an unclean stop it would be built from the beginning
    root = _left(one, abort=None)
    if not is_clean:
        (root / "abort").write_bytes((root / "flintlog/writer").read_bytes())
    one.start()
    assert one.leader.store.recovery.dispatched_from > 0
    with pytest.raises(DamagedRecord, match=f"offset {WRONG - 1}"):  # the wrong entry is still there
        one.leader.store.get("orders", 0, WRONG, 1)
