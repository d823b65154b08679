"""Translation of RocketMQ's option names and text values to ours.

`rocketmq_options.json` holds the settable names of RocketMQ's configuration classes with type and default, as the
5.5.0 jars report them. A name that is not in it is an error. A name that is in it, but has no effect on a store here,
is returned as ignored, with its reason. Its value must have RocketMQ's type all the same, because a typing error should
not go unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from flintlog.errors import InvalidConfig
from flintlog.store.options.ignored_options import why_ignored
from flintlog.store.options.option import INT_MAX, LONG_MAX, Option, did_you_mean

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLUSH = {"SYNC_FLUSH": "sync", "ASYNC_FLUSH": "async"}
_PUT_LOCK = {"true": "blocking", "false": "spinning"}
_COMPOSED = frozenset({"flushDiskType", "useReentrantLockWhenPutMessage", "brokerIP1", "listenPort"})
_DEFAULT_IP = "127.0.0.1"
_DEFAULT_PORT = "10911"
_LIMITS = (
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    "maxMsgsNumBatch",
)
"""Limits of what one read returns: RocketMQ always has them, a store here only if they are named."""


@dataclass(frozen=True, slots=True)
class Known:
    """An option as RocketMQ declares it: its class, its Java type and its default."""

    owner: str
    type: str
    default: str | None

    def accepts(self, text: str) -> bool:
        """Whether the text has the option's type. If RocketMQ's own default has not, a setter parses words there."""
        return self._has_type(text) or (self.default is not None and not self._has_type(self.default))

    def _has_type(self, text: str) -> bool:
        kind, most = _JAVA_TYPES[self.type]
        try:
            value = _PARSERS[kind](text.strip())
        except ValueError:
            return False
        return most is None or (isinstance(value, int) and -most - 1 <= value <= most)


_JAVA_TYPES: Mapping[str, tuple[str, int | None]] = {
    "int": ("int", INT_MAX),
    "long": ("int", LONG_MAX),
    "double": ("float", None),
    "boolean": ("bool", None),
    "String": ("str", None),
}


@cache
def rocketmq_names() -> Mapping[str, Known]:
    """Every name that RocketMQ knows; if several classes have it, as the first declares it."""
    import json
    from importlib import resources

    text = resources.files("flintlog.store.options").joinpath("rocketmq_options.json").read_text("utf-8")
    known: dict[str, Known] = {}
    for owner, names in json.loads(text).items():
        for name, (type_name, default) in names.items():
            known.setdefault(name, Known(owner, type_name, default))
    return known


def ignored_names(table: Mapping[str, Option]) -> dict[str, str]:
    """Names that RocketMQ knows and that have no effect here, each with its reason."""
    ours = {option.rocketmq for option in table.values()} | _COMPOSED
    return {name: why_ignored(name, known.owner) for name, known in rocketmq_names().items() if name not in ours}


def with_rocketmq_defaults(values: Mapping[str, str]) -> dict[str, str]:
    """RocketMQ's options as given, and those with RocketMQ's defaults that are not the defaults here."""
    known = rocketmq_names()
    limits = {name: known[name].default or "" for name in _LIMITS}
    return {"flushDiskType": "ASYNC_FLUSH", **limits, **values}


def parse_options(values: Mapping[str, str], table: Mapping[str, Option]) -> tuple[dict[str, object], dict[str, str]]:
    """Return our names with parsed values, and the names that have no effect with their reasons."""
    by_name = {option.rocketmq: option for option in table.values() if option.rocketmq is not None}
    parsed: dict[str, object] = {}
    ignored: dict[str, str] = {}
    for name, text in values.items():
        if name in by_name:
            parsed[by_name[name].name] = parse_option(by_name[name], text, name)
        elif name not in _COMPOSED:
            known = rocketmq_names().get(name)
            if known is None:
                raise _unknown(name, table)
            if not known.accepts(text):
                raise InvalidConfig(f"option {name} = {text!r}", advice=f"RocketMQ expects {known.type}")
            ignored[name] = why_ignored(name, known.owner)
    parsed.update(_parse_composed(values))
    return parsed, dict(sorted(ignored.items()))


def _parse_composed(values: Mapping[str, str]) -> dict[str, object]:
    """Options of ours that have other words in RocketMQ, or consist of several options there."""
    parsed: dict[str, object] = {}
    if "flushDiskType" in values:
        parsed["flush"] = _translate("flushDiskType", values["flushDiskType"].strip(), _FLUSH)
    if "useReentrantLockWhenPutMessage" in values:
        text = values["useReentrantLockWhenPutMessage"].strip().lower()
        parsed["put_lock"] = _translate("useReentrantLockWhenPutMessage", text, _PUT_LOCK)
    if "brokerIP1" in values or "listenPort" in values:
        ip = values.get("brokerIP1", _DEFAULT_IP).strip()
        port = values.get("listenPort", _DEFAULT_PORT).strip()
        parsed["store_host"] = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return parsed


def _translate(name: str, text: str, words: Mapping[str, str]) -> str:
    if text not in words:
        raise InvalidConfig(f"option {name} = {text!r}", advice="expected one of " + ", ".join(words))
    return words[text]


def parse_option(option: Option, text: object, name: str | None = None) -> object:
    """Turn a text into a value of the option's kind; anything but a text is taken as it is."""
    if not isinstance(text, str):
        return text
    if option.optional and not text.strip():
        return None
    try:
        return _PARSERS[option.kind](text.strip())
    except ValueError:
        raise InvalidConfig(f"option {name or option.name} = {text!r}", advice=f"expected {option.kind}") from None


def to_text(value: object) -> str:
    """Write a value of a JSON or TOML file as RocketMQ's properties would."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_int(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _parse_bool(text: str) -> bool:
    # RocketMQ reads every word but "true" as false. A typing error must not silently switch off a safeguard.
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_set(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _parse_mapping(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(text)
    return {key.strip(): value.strip() for key, _, value in pairs}


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "int": _parse_int,
    "float": float,
    "bool": _parse_bool,
    "str": str,
    "set of str": _parse_set,
    "mapping of str": _parse_mapping,
}


def advise(name: str, table: Mapping[str, Option], known: Iterable[str]) -> str | None:
    """Advice on a name that is no option: why RocketMQ's has no effect here, or a similar known name."""
    ignored = {theirs.lower(): theirs for theirs in ignored_names(table)}
    theirs = ignored.get(name.replace("_", "").lower())
    if theirs is None:
        return did_you_mean(name, known)
    return f"RocketMQ's {theirs} {why_ignored(theirs, rocketmq_names()[theirs].owner)}"


def _unknown(name: str, table: Mapping[str, Option]) -> InvalidConfig:
    ours = table.get(name)
    if ours is None:
        advice = advise(name, table, (*rocketmq_names(), *table))
    elif ours.rocketmq is None:
        advice = f"it is one of ours: StoreConfig({name}=…)"
    else:
        advice = f"{name} is our name for it, RocketMQ's is {ours.rocketmq}"
    return InvalidConfig(f"RocketMQ has no option {name}", advice=advice)
