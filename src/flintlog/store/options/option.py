"""The declaration of an option, the table of all options, and the page that documents them.

An option is declared once, as a field of `StoreConfig` or of the structs it builds on:

    flush_interval_commit_log: Annotated[int, option("flushIntervalCommitLog", unit="ms", low=1, about="...")] = 500

The field gives name, type and default; `option(...)` gives RocketMQ's name, the unit, the bounds and one sentence.
`read_options` turns such a class into a table. Validation, `from_rocketmq` and the documentation all use that table.
`python -m flintlog.store.options.option` prints the page of options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass
from inspect import get_annotations
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of an option beside its field; `group` begins a new group of the page at this option."""

    rocketmq: str | None = None
    _: KW_ONLY
    about: str
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    group: str | None = None


option = Declaration


@dataclass(frozen=True, slots=True)
class Option:
    """One option: a row of the table."""

    name: str
    rocketmq: str | None
    kind: str
    optional: bool
    choices: tuple[str, ...]
    unit: str | None
    low: float | None
    high: float | None
    default: object
    about: str
    group: str

    def complaint(self, value: object) -> str | None:
        """Why this option cannot have `value`; None when it can."""
        if value is None:
            return None if self.optional else f"expected {self.kind}"
        if self.choices:
            return None if value in self.choices else "expected one of " + ", ".join(map(repr, self.choices))
        if not _has_kind(value, self.kind):
            return f"expected {self.kind}"
        if isinstance(value, (int, float)) and self.low is not None and not value >= self.low:
            return f"the least is {self.low}"
        if isinstance(value, (int, float)) and self.high is not None and not value <= self.high:
            return f"the most is {self.high}"
        return None


def _has_kind(value: object, kind: str) -> bool:
    """Whether a value has an option's kind; a boolean is no number."""
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    if kind == "set of str":
        return isinstance(value, frozenset) and all(isinstance(item, str) for item in value)
    return isinstance(value, Mapping) and all(isinstance(item, str) for pair in value.items() for item in pair)


def _read_type(declared: object) -> tuple[str, bool, tuple[str, ...]]:
    """Split a field's type into its kind, whether None is allowed, and the allowed words."""
    if get_origin(declared) is Literal:
        return "str", False, get_args(declared)
    parts = [part for part in get_args(declared) if part is not NoneType]
    if NoneType in get_args(declared):
        return _read_type(parts[0])[0], True, ()
    if get_origin(declared) is Set:
        return "set of str", False, ()
    if isinstance(declared, type):
        return declared.__name__, False, ()
    return "mapping of str", False, ()


def read_default(field: msgspec.structs.FieldInfo) -> object:
    """What a field has if nothing is given for it."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def read_options(owner: type[msgspec.Struct]) -> dict[str, Option]:
    """Build the table of a class: every field whose type has an `option(...)`, its own before inherited ones."""
    table: dict[str, Option] = {}
    defaults = {field.name: field for field in msgspec.structs.fields(owner)}
    group = ""
    hints = get_type_hints(owner, include_extras=True)
    own_first = [name for part in owner.__mro__ for name in get_annotations(part)]
    for name in own_first:
        hint = hints[name]
        if get_origin(hint) is not Annotated:
            continue
        declared, declaration = get_args(hint)[:2]
        kind, optional, choices = _read_type(declared)
        group = declaration.group or group
        high = INT_MAX if kind == "int" and declaration.high is None else declaration.high
        table[name] = Option(
            name, declaration.rocketmq, kind, optional, choices, declaration.unit, declaration.low, high,
            read_default(defaults[name]), declaration.about, group,
        )  # fmt: skip
    return table


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Advice on a misspelt option; None when no known name is similar."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return f"did you mean {by_lower[near[0]]}?" if near else None


def _bounds(option: Option) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if option.kind not in ("int", "float"):
        return ""
    high = {INT_MAX: "2^31 − 1", LONG_MAX: "2^63 − 1"}.get(int(option.high or 0), f"{option.high}")
    return f"{option.low} … {high}"


def _default(option: Option) -> str:
    if option.default is None:
        return "none"
    if isinstance(option.default, (frozenset, dict)):
        return "empty"
    return f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"


def render_page(table: Mapping[str, Option], ignored: Mapping[str, str]) -> str:
    """Write the page of options in Markdown; `ignored` has RocketMQ's names without effect and their reasons."""
    lines = [
        "# Options of a store",
        "",
        "Made from the declarations in `flintlog.store`; `make docs` writes it again.",
        "",
        "`StoreConfig(...)` takes the names on the left, `StoreConfig.from_rocketmq({...})` those of RocketMQ with",
        "text values, and `StoreConfig.load(path)` a file with either. Defaults are RocketMQ's but for `flush`,",
        "`retention` and the limits of one read: `StoreConfig()` flushes synchronously, deletes nothing, and a `get`",
        "returns what was asked for. `from_rocketmq` deletes, flushes asynchronously unless `flushDiskType` says",
        "otherwise, and limits a read as RocketMQ does (`max_transfer_…`: 32 messages and 256 KiB, from disk 8 and",
        "64 KiB; `max_msgs_num_batch`: 64).",
        "",
        "RocketMQ's other options are listed at the end. `from_rocketmq` takes them, so that a broker's file can be",
        "used as it is. `config.ignored` says of each why it has no effect; `flintlog doctor --config FILE` prints it.",
    ]
    group = None
    for option in table.values():
        if option.group != group:
            group = option.group
            lines += ["", f"## {group}", "", "| option | RocketMQ's name | type | unit | bounds | default | about |"]
            lines.append("|---|---|---|---|---|---|---|")
        rocketmq = f"`{option.rocketmq}`" if option.rocketmq else ""
        cells = (f"`{option.name}`", rocketmq, option.kind, option.unit or "", _bounds(option), _default(option))
        lines.append(f"| {' | '.join(cells)} | {option.about} |")
    lines += ["", "## RocketMQ's options without effect", ""]
    lines += ["Names that `from_rocketmq` takes and lists in `config.ignored`, with their reasons:", ""]
    lines += ["| RocketMQ's names | no effect here because |", "|---|---|"]
    by_reason: dict[str, list[str]] = {}
    for name in sorted(ignored):
        by_reason.setdefault(ignored[name].partition(" because ")[2], []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {reason} |" for reason, names in by_reason.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page of options."""
    from flintlog.store.options.rocketmq_options import ignored_names
    from flintlog.store.options.store_config import OPTIONS

    sys.stdout.write(render_page(OPTIONS, ignored_names(OPTIONS)))


if __name__ == "__main__":
    main()
