"""The consumer groups of a store: whether they may consume, how often they retry. Kept in `subscriptionGroup.json`.

    store.groups.create("billing", retry_max_times=5)

A group's offsets are kept in `consumer_offsets.py`. They stay when the group is deleted, as in RocketMQ, unless the
caller wants them deleted too. In a store with light queues every light group (%LMQ%...) exists, with the defaults, and
is in no file: there may be as many as devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypedDict, Unpack

import msgspec

from flintlog.errors import InvalidConfig, StoreClosed
from flintlog.format.config_json import JsonObject
from flintlog.format.topics import LEGAL_NAME, LMQ_PREFIX
from flintlog.store.model.arguments import plain_text
from flintlog.store.settings.config_table import ConfigTable

MAX_GROUP_NAME: Final = 120
RETRY_MAX_TIMES: Final = 16

_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_PREDEFINED_NAMES: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One group, with RocketMQ's names (SubscriptionGroupConfig) and defaults."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = RETRY_MAX_TIMES
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.group_name


class GroupValues(TypedDict, total=False):
    """The values of a group that can be set: the fields of `GroupConfig` without its name."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    group_sys_flag: int
    consume_timeout_minute: int
    attributes: dict[str, str]


SYSTEM_GROUPS: Final = tuple(GroupConfig(group_name=name) for name in _PREDEFINED_NAMES)
GROUP_EXTRAS: Final[JsonObject] = {"groupRetryPolicy": {"type": "CUSTOMIZED"}}
"""Further members that Java writes for a group; only brokers use them."""


def is_system_group(name: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return name in _PREDEFINED_NAMES or name.startswith(_SYSTEM_PREFIX)


class Groups:
    """The configured groups. Any thread may call; a change is on disk when the call returns."""

    def __init__(
        self,
        table: ConfigTable[GroupConfig],
        *,
        read_only: bool,
        remove_offsets: Callable[[str], None],
        forget: Callable[[str], None],
        is_light: bool = False,
    ) -> None:
        """`forget` is called with a group that was deleted. `is_light`: light queues are served."""
        self._is_light = is_light
        self._table = table
        self._read_only = read_only
        self._remove_offsets = remove_offsets
        self._forget = forget

    def get(self, name: str) -> GroupConfig | None:
        """The group's configuration, or None."""
        found = self._table.get(name)
        if found is None and self._is_light and isinstance(name, str) and name.startswith(LMQ_PREFIX):
            return GroupConfig(group_name=name)
        return found

    def list(self, *, system: bool = False) -> list[GroupConfig]:
        """The groups by name; RocketMQ's own only when they are asked for."""
        return [group for group in self._table.all() if system or not is_system_group(group.name)]

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def create(self, name: str, **values: Unpack[GroupValues]) -> GroupConfig:
        """Create a group; `values` are fields of `GroupConfig`. One that is there already is an error."""
        self._check_changeable(name)
        if name in self:
            raise InvalidConfig(f"there is a group {name!r} already", advice="change it instead")
        return self._put(GroupConfig(group_name=plain_text(name)), values)

    def change(self, name: str, **values: Unpack[GroupValues]) -> GroupConfig:
        """Change some values of a group."""
        return self._put(self._get_changeable(name), values)

    def get_or_create(self, name: str) -> GroupConfig:
        """The group; created with RocketMQ's defaults if need be, as a broker does for a group that consumes."""
        found = self.get(name)
        return self.create(name) if found is None else found

    def delete(self, name: str, *, clean_offsets: bool = False) -> None:
        """Delete a group; its offsets stay for a group of that name, unless they are to go too."""
        self._get_changeable(name)
        self._table.remove(name)
        if clean_offsets:
            self._remove_offsets(name)
        self._forget(name)

    def _put(self, old: GroupConfig, values: GroupValues) -> GroupConfig:
        unknown = values.keys() - set(GroupConfig.__struct_fields__) | values.keys() & {"group_name"}
        if unknown:
            raise InvalidConfig(f"a group has no value {min(unknown)} that could be set")
        group: GroupConfig = msgspec.structs.replace(old, **values)
        _check_values(group)
        self._table.put(group)
        return group

    def _check_changeable(self, name: str) -> None:
        if self._read_only:
            raise StoreClosed("the store was opened read-only", path=self._table.file.path)
        check_group_name(name)

    def _get_changeable(self, name: str) -> GroupConfig:
        self._check_changeable(name)
        found = self._table.get(name)
        if found is None:
            raise InvalidConfig(f"there is no group {name!r}", advice="create it first")
        if is_system_group(name):
            raise InvalidConfig(f"the group {name!r} is RocketMQ's own")
        return found


def check_group_name(name: str) -> None:
    """Raise unless a broker of RocketMQ's would take the name."""
    if not isinstance(name, str):
        raise InvalidConfig(f"a group is text, not {type(name).__name__}")
    if not LEGAL_NAME.fullmatch(name):
        raise InvalidConfig(f"a group cannot be {name[:80]!a}", advice="letters, digits, %, |, _ and - make a group")
    if len(name) > MAX_GROUP_NAME:
        raise InvalidConfig(f"a group of {len(name)} characters", advice=f"at most {MAX_GROUP_NAME}")


def _check_values(group: GroupConfig) -> None:
    for field in msgspec.structs.fields(GroupConfig):
        value = getattr(group, field.name)
        if field.type is bool and not isinstance(value, bool):
            raise InvalidConfig(f"{field.name} = {value!r}", advice="True or False")
        if field.type is int and (not isinstance(value, int) or isinstance(value, bool)):
            raise InvalidConfig(f"{field.name} = {value!r}", advice="a number")
    for name, low, high in (("retry_queue_nums", 0, 65_536), ("retry_max_times", -1, (1 << 31) - 1)):
        if not low <= getattr(group, name) <= high:
            raise InvalidConfig(f"{name} = {getattr(group, name)!r}", advice=f"a number from {low} to {high}")
    texts = group.attributes.items() if isinstance(group.attributes, dict) else [(0, 0)]
    if not all(isinstance(text, str) for pair in texts for text in pair):
        raise InvalidConfig(f"attributes = {group.attributes!r}", advice="a dict of texts")
