"""A store after a cut, held against its model. The directory itself is not touched: everything happens to a copy.

copy ─▶ open (findings) ─▶ what is served ─▶ close ─▶ verify ─▶ open again ─▶ compare with a rebuild from the log
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import cast

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.format.topics import is_system_topic
from flintlog.maintenance.verify.verify import verify
from flintlog.store.model.stored_message import QueueInfo, StoredMessage
from tests.power.model import Broken, Model, Place, State
from tests.power.plan import LIGHT, TEMPORARY, Plan, without_services
from tests.power.worker import body_of, key_of

Served = dict[Place, tuple[str, int]]
Entries = dict[Place, tuple[object, ...]]
DELIVERY_PATIENCE_S = 20.0
KEYS = 60
"""So many keys are looked for in the index."""


def check_cut(path: Path, plan: Plan, model: Model, scratch: Path) -> None:
    """What a cut left at `path` keeps every promise of the model; raises `Broken` if it does not."""
    copy = scratch / "copy"
    shutil.copytree(path, copy)
    try:
        with open_store(copy, plan.config.with_changes(retention="off")) as store:
            model.judge([[found.id, found.severity, found.physical_offset, str(found)] for found in store.recovery])
            begin, end = store.min_physical_offset, store.recovery.log_end
            _check_begin(begin, plan)
            _wait_for_deliveries(store, model, begin)
            served = _read_users(store)
            undecided = _undecided(store) if plan.has_services else set()
            check_served(store, served, model, begin)
            if plan.has_light_queues:
                _check_light(store, served)
            if plan.has_services:
                _check_transactions(served, undecided, model, begin)
            _check_batches(store, served, model, begin)
        _check_verified(copy, plan.config, model)
        compare_with_rebuild(copy, scratch / "rebuilt", plan, model)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    model.settle(served, undecided, begin, end)


def _check_begin(begin: int, plan: Plan) -> None:
    if begin and not plan.retains:
        raise Broken(f"nobody asked for retention, and the log begins at {begin}")


# ---------------------------------------------------------------------- reading


def read_queue(store: Store, info: QueueInfo) -> Iterator[StoredMessage]:
    """Every message of a queue, in order; a get that finds nothing before the end is a failure."""
    offset = info.min_offset
    while offset < info.max_offset:
        page = store.get(info.topic, info.queue_id, offset, 64)
        yield from page.messages
        if page.next_offset <= offset:
            raise Broken(f"{info} at {offset}: {page.status.name}, next is {page.next_offset}")
        offset = page.next_offset


def _read_users(store: Store) -> Served:
    """What the users' topics serve. Each body is the one that belongs to its key."""
    served: Served = {}
    store.wait_dispatched()
    for info in store.queues():
        if is_system_topic(info.topic) or info.topic in LIGHT:
            continue
        for message in read_queue(store, info):
            place = (info.topic, info.queue_id, message.queue_offset)
            key = key_of(message.body)
            if message.body != body_of(key) or (message.topic, message.queue_id) != place[:2] or place in served:
                raise Broken(f"{place} serves {message!r} with the key {key}")
            served[place] = (key, message.physical_offset)
    return served


def _undecided(store: Store) -> set[str]:
    service = store.service("transaction")
    return {key_of(each.message.body) for each in service.undecided()}


def _wait_for_deliveries(store: Store, model: Model, begin: int) -> None:
    """Every delayed message that is durable must be delivered in time."""
    wanted = {
        key for key, promise in model.delayed.items() if promise.state is State.DURABLE and promise.physical >= begin
    }
    deadline = time.monotonic() + DELIVERY_PATIENCE_S
    while True:
        keys = {key for key, _ in _read_users(store).values()}
        if wanted <= keys:
            return
        if time.monotonic() > deadline:
            lost = sorted(wanted - keys)
            raise Broken(f"{len(lost)} delayed messages were not delivered: {lost[:5]} {model.delayed[lost[0]]}")
        time.sleep(0.05)


# ---------------------------------------------------------------------- promises


def check_served(store: Store, served: Served, model: Model, begin: int) -> None:
    """Every durable message is at its place and under its key; nothing is served twice, nothing deleted is back."""
    lost = [
        promise
        for promise in model.messages.values()
        if promise.state is State.DURABLE
        and promise.physical >= begin
        and promise.key not in model.doomed
        and served.get(cast(Place, promise.place)) != (promise.key, promise.physical)
    ]
    if lost:
        first = lost[0]
        at = store.message_at(first.physical)
        in_log = at is not None and at.body == body_of(first.key)
        raise Broken(
            f"{len(lost)} acknowledged messages are lost, the first: {first}; in the log: {in_log}; "
            f"its place has {served.get(cast(Place, first.place))}; queues: {store.queues()}"
        )
    _check_unique(served, model)
    chance = Random(model.durable_end)
    known = [promise for promise in model.messages.values() if promise.state is State.DURABLE]
    known = [each for each in known if each.physical >= begin and each.key not in model.doomed]
    for promise in chance.sample(known, min(KEYS, len(known))) if store.config.message_index_enable else ():
        found = [message.physical_offset for message in store.query(promise.topic, promise.key, max_count=64)]
        if promise.physical not in found:
            raise Broken(f"{promise} is not in the index: {found}")


def _check_unique(served: Served, model: Model) -> None:
    places: dict[str, Place] = {}
    for place, (key, _) in served.items():
        if key in model.gone:
            raise Broken(f"{key} was deleted with its topic, and is back at {place}")
        if key in model.rolled_back and model.rolled_back[key].state is State.DURABLE:
            raise Broken(f"{key} was rolled back, and is served at {place}")
        if key in places and key not in model.ever_delayed:
            raise Broken(f"{key} is stored twice: at {places[key]} and at {place}")
        places[key] = place
        other = model.given.get(place)
        held = None if other is None else model.messages.get(other)
        if other not in (None, key) and (held is None or held.state is State.DURABLE):
            raise Broken(f"{place} was given to {other}, and serves {key}")


def _check_light(store: Store, served: Served) -> None:
    """A light queue has the messages that name it, each at the offset that its record names, and no others."""
    wanted: dict[Place, int] = {}
    for place, (_, physical) in served.items():
        message = store.message_at(physical)
        properties = {} if message is None else message.properties
        names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
        offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
        for name, offset in zip(names, offsets, strict=True):
            if name:
                if (name, 0, int(offset)) in wanted:
                    raise Broken(f"{name} gave the offset {offset} twice, the second time to {place}")
                wanted[name, 0, int(offset)] = physical
    found = {
        (info.topic, 0, offset): entry.physical_offset
        for info in store.queues()
        if info.topic in LIGHT
        for offset in range(info.min_offset, info.max_offset)
        if (entry := store._host.entry(info.topic, 0, offset)) is not None
    }
    if found != wanted:
        first = min(place for place in found.keys() | wanted.keys() if found.get(place) != wanted.get(place))
        raise Broken(f"the light queue's {first} leads to {found.get(first)}, its record is {wanted.get(first)}")


def _check_transactions(served: Served, undecided: set[str], model: Model, begin: int) -> None:
    keys = {key for key, _ in served.values()}
    for key, promise in model.begun.items():
        if promise.physical < begin:
            continue
        is_open = promise.state is State.DURABLE and key not in model.deciding
        if is_open and key not in undecided:
            raise Broken(f"nobody decided the transaction {promise}, and it is not undecided any more")
        rolled_back = model.rolled_back.get(key)
        is_decided = key in keys or (rolled_back is not None and rolled_back.state is State.DURABLE)
        if key in undecided and is_decided:
            raise Broken(f"the transaction {promise} is undecided, and was decided")


def _check_batches(store: Store, served: Served, model: Model, begin: int) -> None:
    """A batch is whole or absent; the store knows which, when the batch comes again."""
    keys = {key for key, _ in served.values()}
    for batch_id, batch in model.batches.items():
        if begin and (batch.start is None or batch.start < begin):
            continue  # retention may have taken some of it
        found = [key for key in batch.keys if key in keys]
        if len(found) not in (0, len(batch.keys)) or (batch.start is not None and not found):
            raise Broken(f"batch {batch_id} ({batch.start}): {len(found)} of {len(batch.keys)} messages are there")
        if batch_id == max(model.batches):
            again = [Message("again", body_of(f"again.{key}")) for key in batch.keys]
            done = store.put_closed(again, writer_id="writer", batch_id=batch_id)
            if (done is None) != bool(found):
                raise Broken(f"batch {batch_id} is {'there' if found else 'absent'}, and coming again gave {done}")


def _check_verified(copy: Path, config: StoreConfig, model: Model) -> None:
    found = [
        each for each in verify(copy, config).findings if (each.id, each.physical_offset) not in model.known_damage
    ]
    if found:
        raise Broken(f"verify after recovery and a clean stop: {[str(each) for each in found[:5]]}")


# ---------------------------------------------------------------------- rebuilding


def compare_with_rebuild(copy: Path, rebuilt: Path, plan: Plan, model: Model) -> None:
    """Queues and index answer as those that are built from the log alone."""
    keys = sorted((promise.topic, promise.key) for promise in model.messages.values())
    keys = Random(model.durable_end).sample(keys, min(KEYS, len(keys)))
    check_against_rebuild(
        copy, rebuilt, without_services(plan.config), known=model.known_damage, keys=keys, deleted={TEMPORARY}
    )


def check_against_rebuild(
    copy: Path,
    rebuilt: Path,
    config: StoreConfig,
    *,
    known: Collection[tuple[str, int | None]] = (),
    keys: Sequence[tuple[str, str]] = (),
    deleted: Collection[str] = (),
) -> None:
    """A store that was stopped cleanly, beside one that has its log and settings alone. `deleted`: topics."""
    rebuilt.mkdir()
    for folder in ("commitlog", "config"):
        if (copy / folder).exists():
            shutil.copytree(copy / folder, rebuilt / folder)
    try:
        with open_store(copy, config) as ours, open_store(rebuilt, config) as theirs:
            new = [str(each) for each in ours.recovery if (each.id, each.physical_offset) not in known]
            if new:
                raise Broken(f"findings after a clean stop: {new}")
            _compare_entries(_entries(ours), _entries(theirs), deleted)
            for topic, key in [*keys, ("orders", "s0"), ("events", "s1")]:
                mine, other = _found(ours, topic, key), _found(theirs, topic, key)
                if mine != other:
                    raise Broken(f"the index gives {mine} for {key}, a rebuild {other}")
    finally:
        shutil.rmtree(rebuilt, ignore_errors=True)


def _compare_entries(ours: Entries, theirs: Entries, deleted: Collection[str]) -> None:
    extra = {place for place in theirs.keys() - ours.keys() if place[0] not in deleted}
    wrong = {place for place, entry in ours.items() if theirs.get(place) != entry} | extra
    if wrong:
        first = min(wrong)
        raise Broken(f"{len(wrong)} entries differ from a rebuild: {first} {ours.get(first)} {theirs.get(first)}")


def _found(store: Store, topic: str, key: str) -> list[int]:
    return [message.physical_offset for message in store.query(topic, key, max_count=64)]


def _entries(store: Store) -> Entries:
    """Every entry of every queue, with the record that it leads to."""
    entries: Entries = {}
    store.wait_dispatched()
    for info in store.queues():
        for message in read_queue(store, info):
            entry = store._host.entry(info.topic, info.queue_id, message.queue_offset)
            extension = None if entry is None or entry.extension is None else entry.extension
            entries[info.topic, info.queue_id, message.queue_offset] = (
                message.physical_offset,
                None if entry is None else (entry.physical_offset, entry.size, entry.tags_code),
                None if extension is None else (extension.tags_code, extension.store_timestamp),
            )
    return entries
