"""RocketMQ's own names and text values, brought to ours.

`rocketmq_options.json` holds the settable names of RocketMQ's configuration classes with type and default, as the
5.5.0 jars report them. A name that is in none of them is an error; a name that is but concerns no store (network,
name servers, RocksDB, ...) is handed back as ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources

from flintlog.errors import InvalidConfig
from flintlog.store.options.option import Option, did_you_mean

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLUSH = {"SYNC_FLUSH": "sync", "ASYNC_FLUSH": "async"}
_PUT_LOCK = {"true": "blocking", "false": "spinning"}
_COMPOSED = frozenset({"flushDiskType", "useReentrantLockWhenPutMessage", "brokerIP1", "listenPort"})
_DEFAULT_IP = "127.0.0.1"
_DEFAULT_PORT = "10911"


@cache
def rocketmq_names() -> Mapping[str, tuple[str, ...]]:
    """Every name that RocketMQ knows, with the classes that have it."""
    text = resources.files("flintlog.store").joinpath("rocketmq_options.json").read_text("utf-8")
    owners: dict[str, tuple[str, ...]] = {}
    for owner, names in json.loads(text).items():
        for name in names:
            owners[name] = (*owners.get(name, ()), owner)
    return owners


def ignored_names(table: Mapping[str, Option]) -> frozenset[str]:
    """Names that RocketMQ knows and that concern no store."""
    return frozenset(rocketmq_names()) - {option.rocketmq for option in table.values()} - _COMPOSED


def parse_options(values: Mapping[str, str], table: Mapping[str, Option]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return our names with parsed values, and the names that concern no store."""
    by_name = {option.rocketmq: option for option in table.values() if option.rocketmq is not None}
    parsed: dict[str, object] = {}
    ignored = []
    for name, text in values.items():
        if name in by_name:
            parsed[by_name[name].name] = parse_option(by_name[name], text, name)
        elif name not in _COMPOSED:
            if name not in rocketmq_names():
                raise _unknown(name, table)
            ignored.append(name)
    parsed.update(_parse_composed(values))
    return parsed, tuple(sorted(ignored))


def _parse_composed(values: Mapping[str, str]) -> dict[str, object]:
    """Options of ours that are another word, or made of several, in RocketMQ."""
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
    # RocketMQ takes everything but "true" for false; a typing error must not switch off a safeguard in silence.
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


def _unknown(name: str, table: Mapping[str, Option]) -> InvalidConfig:
    ours = table.get(name)
    if ours is None:
        advice = did_you_mean(name, (*rocketmq_names(), *table))
    elif ours.rocketmq is None:
        advice = f"it is one of ours: StoreConfig({name}=…)"
    else:
        advice = f"{name} is our name for it, RocketMQ's is {ours.rocketmq}"
    return InvalidConfig(f"RocketMQ has no option {name}", advice=advice)
