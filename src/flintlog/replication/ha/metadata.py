"""The settings that a slave copies besides the log: topics, groups, offsets, delay levels, request modes.

The master answers RocketMQ's five requests from its `config` folder. The slave sends all of them every POLL_S. It
writes the changes into its own folder once the store's parsers have accepted all replies. Either side may be RocketMQ.

    code   reply                                              the slave's file
    21     dataVersion, topicConfigTable, ...                 topics.json                 replaced
    43     offsetTable (and lmqOffsetTable)                   consumerOffset.json         merged
    45     dataVersion, offsetTable                           delayOffset.json            replaced
    201    dataVersion, subscriptionGroupTable, ...           subscriptionGroup.json      replaced
    402    messageRequestModeMap                              messageRequestMode.json     replaced
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flintlog.errors import DamagedStore, FlintlogError, FormatError, PeerFailed
from flintlog.format.config_json import JsonObject, JsonValue, encode_config_json, parse_config_object
from flintlog.remoting import codes
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.frame import Command
from flintlog.remoting.server import Handler
from flintlog.store.settings.config_shapes import Check, check_delay_offsets, check_groups, check_offsets, check_topics
from flintlog.store.settings.consumer_offsets import LIGHT_TABLE
from flintlog.store.settings.json_file import JsonFile, check_objects
from flintlog.store.store import Store

log = logging.getLogger(__name__)

POLL_S: Final = 10.0
_NO_VERSION: Final[JsonObject] = {"counter": 0, "stateVersion": 0, "timestamp": 0}


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the five: its file, its members with their defaults, and the members that exist only on the wire.

    `if_there` names members that only some stores have.
    """

    file: str
    members: Mapping[str, JsonValue]
    wire_only: Mapping[str, JsonValue]
    total: tuple[str, str] | None = None
    if_there: tuple[str, ...] = ()
    is_merged: bool = False


PARTS: Final[Mapping[int, _Part]] = {
    codes.GET_ALL_TOPIC_CONFIG: _Part(
        "topics.json",
        {"dataVersion": _NO_VERSION, "topicConfigTable": {}},
        {"mappingDataVersion": _NO_VERSION, "topicQueueMappingDetailMap": {}, "topicQueueMappingInfoMap": {}},
        ("totalTopicNum", "topicConfigTable"),
    ),
    codes.GET_ALL_CONSUMER_OFFSET: _Part(
        "consumerOffset.json", {"offsetTable": {}}, {}, is_merged=True, if_there=(LIGHT_TABLE,)
    ),
    codes.GET_ALL_DELAY_OFFSET: _Part("delayOffset.json", {"dataVersion": _NO_VERSION, "offsetTable": {}}, {}),
    codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _Part(
        "subscriptionGroup.json",
        {"dataVersion": _NO_VERSION, "forbiddenTable": {}, "subscriptionGroupTable": {}},
        {},
        ("totalGroupNum", "subscriptionGroupTable"),
    ),
    codes.GET_ALL_MESSAGE_REQUEST_MODE: _Part("messageRequestMode.json", {"messageRequestModeMap": {}}, {}),
}


def _take_anything(file: JsonFile, content: JsonObject) -> None:
    """Accept any content: flintlog does not read this file."""


_CHECKS: Final[Mapping[int, Check]] = {
    codes.GET_ALL_TOPIC_CONFIG: check_topics,
    codes.GET_ALL_CONSUMER_OFFSET: check_offsets,
    codes.GET_ALL_DELAY_OFFSET: check_delay_offsets,
    codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: check_groups,
}


def handlers_of(store: Store) -> dict[int, Handler]:
    """The master's answers, by their codes."""
    return handlers_for(lambda: store)


def handlers_for(store: Callable[[], Store]) -> dict[int, Handler]:
    """The same for a store that may be reopened meanwhile."""

    def handler_of(part: _Part) -> Handler:
        async def answer(request: Command) -> Command:
            return await asyncio.to_thread(_answer, store(), part, request)

        return answer

    return {code: handler_of(part) for code, part in PARTS.items()}


def _answer(store: Store, part: _Part, request: Command) -> Command:
    if part.is_merged:
        store.consumer_offsets.save()
    content = _file(store, part).load() or {}
    sent: JsonObject = {name: content.get(name, absent) for name, absent in part.members.items()}
    sent.update({name: content[name] for name in part.if_there if name in content})
    fields: dict[str, str] = {}
    if part.total is not None:
        name, member = part.total
        table = sent[member]
        fields[name] = str(len(table) if isinstance(table, dict) else 0)
    sent.update(part.wire_only)
    body = encode_config_json(dict(sorted(sent.items(), key=lambda item: str(item[0]))), pretty=False)
    return request.reply(codes.SUCCESS, body, fields=fields)


class SettingsPoll:
    """Calls `copy` every `poll_s` seconds, in the loop that it is started in, and logs a lasting failure once."""

    def __init__(self, copy: Callable[[], Awaitable[None]], whose: str, poll_s: float) -> None:
        self._copy = copy
        self._whose = whose
        self._poll_s = poll_s
        self._trouble: str | None = None
        self._polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._polling = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def _poll(self) -> None:
        while True:
            try:
                await self._copy()
                self._trouble = None
            except FlintlogError as failure:
                if str(failure) != self._trouble:
                    self._trouble = str(failure)
                    log.warning("the %s settings cannot be copied: %s", self._whose, failure)
            await asyncio.sleep(self._poll_s)


class MetadataFollower:
    """Copies the master's settings regularly."""

    def __init__(self, store: Store, client: RemotingClient, *, poll_s: float = POLL_S) -> None:
        self._store = store
        self._client = client
        self._poll = SettingsPoll(self._copy, "master's", poll_s)

    async def start(self) -> None:
        self._poll.start()

    async def stop(self) -> None:
        await self._poll.stop()
        await self._client.close()

    async def _copy(self) -> None:
        if await asyncio.to_thread(self.write_all, await self.ask_all()):
            await asyncio.to_thread(self._store.replication.reload_settings)

    async def ask_all(self) -> dict[int, JsonObject]:
        """Ask for all parts."""
        return {code: await self.ask(code) for code in PARTS}

    def write_all(self, received: Mapping[int, JsonObject]) -> bool:
        """Write the changed parts, if all parts are valid; returns whether any was written."""
        news = [(PARTS[code], self._checked(code, content)) for code, content in received.items()]
        written = [self._write(part, new) for part, new in news]
        return any(written)

    async def ask(self, code: int) -> JsonObject:
        """Ask for one part."""
        reply = await self._client.call(Command(code))
        if reply.code != codes.SUCCESS or not reply.body:
            raise PeerFailed(f"{self._client.address} answers request {code} with {reply.code}: {reply.remark}")
        return parse_config_object(reply.body)

    def _checked(self, code: int, received: JsonObject) -> JsonObject:
        """The file's new content; raises if the next opening of the store would refuse it."""
        part = PARTS[code]
        file = _file(self._store, part)
        new = self._joined(part, file.load() or {}, received)
        try:
            check_objects(new, *part.members, *part.if_there)
            _CHECKS.get(code, _take_anything)(file, new)
        except (DamagedStore, FormatError) as failure:
            raise PeerFailed(f"{self._client.address} answers request {code} with {failure.what}") from None
        return new

    def _joined(self, part: _Part, old: JsonObject, received: JsonObject) -> JsonObject:
        new: JsonObject = {**old, **{name: received[name] for name in part.members if name in received}}
        if part.is_merged:
            for name in (*part.members, *part.if_there):
                if name in received:
                    new[name] = _merged(old.get(name), received[name])
        return new

    def _write(self, part: _Part, new: JsonObject) -> bool:
        file = _file(self._store, part)
        if new == (file.load() or {}):
            return False
        return file.save(dict(sorted(new.items(), key=lambda item: str(item[0]))))


def _merged(old: JsonValue, new: JsonValue) -> JsonValue:
    if not isinstance(new, dict):
        return new  # `_checked` refuses it
    return {**(old if isinstance(old, dict) else {}), **new}


def _file(store: Store, part: _Part) -> JsonFile:
    if part.is_merged:
        return JsonFile(store.consumer_offsets.path, store.replication.medium)
    return JsonFile(Path(store.path) / "config" / part.file, store.replication.medium)
