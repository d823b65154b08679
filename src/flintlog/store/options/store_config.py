"""`StoreConfig`: all options of a store, checked when the config is made.

    StoreConfig(flush="async", mapped_file_size_commit_log=1 << 20)       our names
    StoreConfig.from_rocketmq({"mappedFileSizeCommitLog": "1048576"})     RocketMQ's names and text values
    StoreConfig.load("broker.conf")                                       a file with either

A config never changes: `with_changes` makes another one. Its attributes are plain values, so that hot code may read
them. Invariant: each value has its type and is within its bounds, and consume queue files hold whole entries.

Reasons and costs: docs/decisions/0003.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from flintlog.errors import InvalidConfig
from flintlog.format.config_json import BATCH_TYPE, SIMPLE_TYPE
from flintlog.store.options.option import option, read_default, read_options
from flintlog.store.options.rocketmq_options import advise, parse_option, parse_options, to_text, with_rocketmq_defaults
from flintlog.store.options.store_options import StoreOptions
from flintlog.store.options.values import check_host, check_hours, check_words, parse_delay_levels

if TYPE_CHECKING:
    from typing import Self

SERVICES = frozenset({"schedule", "timer", "transaction"})
QUEUE_TYPES = frozenset({SIMPLE_TYPE, BATCH_TYPE})
_QUEUE_ENTRY_SIZE = 20
_TIMER_PRECISIONS_MS = (1000, 500, 200, 100)
_ASK_FOR_RETENTION = frozenset(
    {
        "file_reserved_time",
        "delete_when",
        "disk_max_used_space_ratio",
        "disk_space_clean_forcibly_ratio",
        "disk_space_warning_level_ratio",
    }
)


class _ConfigMeta(msgspec.StructMeta):
    """Raises `InvalidConfig` for an unknown option, with a similar name as advice."""

    def __call__(self, *args: object, **values: object) -> object:
        unknown = values.keys() - set(self.__struct_fields__)
        if unknown:
            name = min(unknown)
            raise InvalidConfig(f"there is no option {name}", advice=advise(name, OPTIONS, self.__struct_fields__))
        return super().__call__(*args, **_with_retention(values))


def _with_retention(values: dict[str, object]) -> dict[str, object]:
    """Turn retention on when one of its own options is given."""
    if "retention" in values or not values.keys() & _ASK_FOR_RETENTION:
        return values
    return {**values, "retention": "on"}


class StoreConfig(StoreOptions, frozen=True, kw_only=True, metaclass=_ConfigMeta):
    """The options of one store. `StoreConfig()` is safe: an acknowledged message is on disk.

    >>> StoreConfig(flush="async").with_changes(max_message_size=1024)
    StoreConfig(max_message_size=1024, flush='async')
    """

    # fmt: off
    flush: Annotated[Literal["sync", "async"], option(group="flintlog's own",
        about="Whether a put waits until its message is on disk (`flushDiskType` of RocketMQ).")] = "sync"
    store_host: Annotated[str, option(
        about="Address that records and message ids carry (`brokerIP1` and `listenPort` of RocketMQ)."
    )] = "127.0.0.1:10911"
    services: Annotated[Set[str], option(
        about="Services that run with the store: `schedule`, `timer`, `transaction`.")] = frozenset()
    dispatch: Annotated[Literal["embedded", "external"], option(
        about="Whether the store builds its queues and index itself or another process does.")] = "embedded"
    dispatch_poll_ms: Annotated[int, option(unit="ms", low=1, high=60_000,
        about='How often a store with `dispatch="external"` looks at what was published.')] = 10
    dispatch_patience_ms: Annotated[int, option(unit="ms", low=0, high=86_400_000,
        about="How long a store waits for the external dispatcher: to open or stop, or for one to start when "
        "`wait_dispatched` needs it.")] = 60_000
    topic_queue_types: Annotated[Mapping[str, str], option(
        about='Topics with another kind of queue, as `{"topic": "BatchCQ"}`.')] = msgspec.field(default_factory=dict)
    medium: Annotated[str, option(
        about="Where the files are: `local`, or a name of the entry point group `flintlog.media`.")] = "local"
    put_lock: Annotated[Literal["blocking", "spinning"], option(
        about="How puts wait for each other (`useReentrantLockWhenPutMessage` of RocketMQ).")] = "blocking"
    retention: Annotated[Literal["on", "off"], option(
        about="Whether old files are deleted as RocketMQ does, and puts refused on a disk that is nearly full. "
        "Off keeps everything. Naming `file_reserved_time`, `delete_when` or a limit of disk usage turns it on; "
        "`from_rocketmq` has it on.")] = "off"
    protect_unconsumed: Annotated[bool, option(
        about="Retention by age keeps messages that are still needed: those that a configured group has not consumed, "
        "delayed and timed messages that were not delivered, undecided transactions.")] = False
    offset_moved_event: Annotated[bool, option(
        about="A consumer whose offset had to be corrected puts a message to `OFFSET_MOVED_EVENT`.")] = False
    warm_ahead_bytes: Annotated[int, option(unit="bytes", low=0,
        about="How far ahead of the writer the pages of the log are allocated, and under sync flush written once with "
        "zeros; 0 turns it off.")] = 16 * 1024 * 1024
    max_mapped_files: Annotated[int, option(unit="files", low=16, high=1_000_000,
        about="Most files that are mapped at once; the least recently used are unmapped first.")] = 4096
    # fmt: on
    ignored: Mapping[str, str] = msgspec.field(default_factory=dict)
    """RocketMQ's names that were given and have no effect here, each with its reason."""

    def __post_init__(self) -> None:
        self._normalise()
        for known in OPTIONS.values():
            value = getattr(self, known.name)
            complaint = known.complaint(value)
            if complaint is not None:
                raise InvalidConfig(f"option {known.name} = {value!r}", advice=complaint)
        check_words("services", self.services, SERVICES)
        check_words("topic_queue_types", self.topic_queue_types.values(), QUEUE_TYPES)
        parse_delay_levels("message_delay_level", self.message_delay_level)
        check_hours("delete_when", self.delete_when)
        check_host("store_host", self.store_host)

    def __repr__(self) -> str:
        """The options that differ from the defaults, as one would write them."""
        values = ((field.name, getattr(self, field.name), field) for field in msgspec.structs.fields(type(self)))
        changed = (f"{name}={_shown(value)}" for name, value, field in values if value != read_default(field))
        return f"{type(self).__name__}({', '.join(changed)})"

    def _normalise(self) -> None:
        """Convert and round values as RocketMQ's own setters and getters do."""
        put = msgspec.structs.force_setattr
        services: object = self.services
        if isinstance(services, (set, list, tuple)) and all(isinstance(name, str) for name in services):
            put(self, "services", frozenset(services))
        if isinstance(self.topic_queue_types, Mapping):
            put(self, "topic_queue_types", dict(self.topic_queue_types))
        size: object = self.mapped_file_size_consume_queue
        if isinstance(size, int):
            put(self, "mapped_file_size_consume_queue", size + -size % _QUEUE_ENTRY_SIZE)
        asked_ms: object = self.timer_precision_ms
        if isinstance(asked_ms, int) and asked_ms > 0:
            lowered_ms = next((precision for precision in _TIMER_PRECISIONS_MS if precision <= asked_ms), 100)
            put(self, "timer_precision_ms", lowered_ms)

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Waiting times of the delay levels, level 1 first."""
        return parse_delay_levels("message_delay_level", self.message_delay_level)

    @property
    def waits_for_replicas(self) -> bool:
        """Whether a put is acknowledged only when other nodes have it too."""
        return self.broker_role == "SYNC_MASTER" and self.in_sync_replicas > 1

    @property
    def waits_in_name_only(self) -> bool:
        """Whether the role promises to wait for slaves, but `in_sync_replicas`, the master counted, asks for none."""
        return self.broker_role == "SYNC_MASTER" and not self.waits_for_replicas

    def with_changes(self, **values: object) -> Self:
        """Return a config with some options changed."""
        return type(self)(**{**msgspec.structs.asdict(self), **_with_retention(values)})

    @classmethod
    def from_rocketmq(cls, values: Mapping[str, str]) -> Self:
        """Build a config from RocketMQ's names and text values, with RocketMQ's defaults.

        They differ from ours in asynchronous flush, retention, and limits of what one `get` or `query` returns.

        Names that have no effect here are listed in `ignored`, each with its reason.

        >>> StoreConfig.from_rocketmq({"flushDiskType": "SYNC_FLUSH", "topicQueueLockNum": "8"}).ignored
        {'topicQueueLockNum': 'has no effect here because one lock orders all puts'}
        """
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise InvalidConfig("RocketMQ's options are a mapping of names to texts")
        parsed, ignored = parse_options(with_rocketmq_defaults(values), OPTIONS)
        return cls(**{"retention": "on", **parsed, "ignored": ignored})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file: `.json`, `.toml`, or properties such as a broker.conf; flat, with RocketMQ's or our names.

        A file in which RocketMQ's names occur starts from RocketMQ's defaults, any other from ours.
        """
        from flintlog.store.options.config_file import load_values

        values = load_values(path)
        ours = {name: value for name, value in values.items() if name in OPTIONS}
        theirs = {name: to_text(value) for name, value in values.items() if name not in OPTIONS}
        try:
            base = cls.from_rocketmq(theirs) if theirs else cls()
            return base.with_changes(**{name: parse_option(OPTIONS[name], value) for name, value in ours.items()})
        except InvalidConfig as error:
            raise InvalidConfig(error.what, path=path, advice=error.advice) from None


def _shown(value: object) -> str:
    if not isinstance(value, frozenset) or not value:
        return repr(value)
    return f"{{{', '.join(sorted(map(repr, value)))}}}"


OPTIONS = read_options(StoreConfig)
