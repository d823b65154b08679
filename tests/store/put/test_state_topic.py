"""Only the group itself writes into the topic of a ledger group's state, whichever put is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.store.scripted_group import CONFIG, ScriptedGroup

from flintlog import InvalidTopic, Message, Store, encoded_batch, open_store
from flintlog.format.topics import STATE_TOPIC
from flintlog.store.runtime.service import Rewritten


class Unequal(str):
    """A name that compares as it likes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def _moved(message: Message, topic: str) -> Message:
    return msgspec.structs.replace(message, topic=topic)


PUTS: dict[str, Callable[[Store, Message], object]] = {
    "put": lambda store, message: store.put(message),
    "put, delayed": lambda store, message: store.put(msgspec.structs.replace(message, delay_level=1)),
    "put_batch": lambda store, message: store.put_batch([message, message]),
    "put_encoded": lambda store, message: store.put_encoded(_moved(encoded_batch([Message("x", b"")]), message.topic)),
    "put_async": lambda store, message: store.put_async(message),
    "aput": lambda store, message: asyncio.run(store.aput(message)),
    "aput_batch": lambda store, message: asyncio.run(store.aput_batch([message])),
    "put_rewritten": lambda store, message: store._host.put_rewritten(message, Rewritten),
}
REBUILT: dict[str, Callable[[Store, Message], object]] = {
    "put_rewritten": lambda store, to: store._host.put_rewritten(Message("x", b""), lambda seen: Rewritten(to)),
    "put_rebuilt": lambda store, message: store._host.put_rebuilt(Rewritten(message)),
    "put_rebuilt_soon": lambda store, message: store._host.put_rebuilt_soon(Rewritten(message)).finish(),
}
NAMES = pytest.mark.parametrize("name", [STATE_TOPIC, Unequal(STATE_TOPIC)], ids=["its name", "a name of another type"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", CONFIG.with_changes(services={"schedule"})) as store:
        group = ScriptedGroup(store)
        group.is_quick = True
        group.lead()
        yield store
        assert all(store.max_offset(info.topic, info.queue_id) == 0 for info in store.queues())
        assert store.max_physical_offset == 0
        group.port.stop()


@NAMES
@pytest.mark.parametrize(
    "put", [*PUTS.values(), *REBUILT.values()], ids=[*PUTS, *(f"{name}, made" for name in REBUILT)]
)
def test_a_message_for_the_state_topic_is_refused(
    store: Store, put: Callable[[Store, Message], object], name: str
) -> None:
    with pytest.raises(InvalidTopic, match="is the group's own"):
        put(store, Message(name, b"x"))


@NAMES
@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_a_hook_cannot_move_a_message_there(store: Store, put: Callable[[Store, Message], object], name: str) -> None:
    store.add_put_hook(lambda message: _moved(message, name))
    with pytest.raises(InvalidTopic, match="is the group's own"):
        put(store, Message("orders", b"x"))
