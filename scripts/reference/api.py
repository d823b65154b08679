"""The page of the public names: signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

import flintlog
from flintlog import Store, StoreConfig, testing
from flintlog.errors import FlintlogError

_WIDTH = 100

_HEAD = """# Python

Made from the docstrings; `make docs` writes it again. Examples in them are run by tests. What is on this page is public
and kept; other modules may change between versions. [Errors](errors.md) and [options](options.md) have pages of their
own.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """Names of one module, under a heading."""

    title: str
    about: str
    module: str
    names: Sequence[str]


_FIRST = ("open_store", "Message", "Store", "Receipt", "StoredMessage", "Page", "Consumer", "StoreConfig")
_FIRST_OF_STORE = (
    *("put", "put_batch", "aput", "aput_batch", "put_async", "get", "messages", "query", "consumer", "close", "topics"),
    *("groups", "scan", "message_by_id", "message_at", "offset_at", "min_offset", "max_offset", "queues", "recovery"),
    *("service", "on_arrival", "stats", "flush", "wait_dispatched", "producer", "put_closed", "put_encoded"),
)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, FlintlogError)


def _of_the_package() -> Sequence[str]:
    """The names of `flintlog` that are no errors, what everybody needs first."""
    others = [name for name in flintlog.__all__ if name not in _FIRST and not _is_error(getattr(flintlog, name))]
    return (*_FIRST, *others)


SECTIONS = (
    Section("flintlog", "`from flintlog import …`", "flintlog", _of_the_package()),
    Section(
        "Received messages",
        "What a consumer gives",
        "flintlog.store.consume.group_queues",
        ["ReceivedMessage", "QueuePosition", "OffsetMove"],
    ),
    Section("Producers", "`store.producer`", "flintlog.store.put.producer", ["Producer"]),
    Section("Topics", "`store.topics`", "flintlog.store.settings.topics", ["Topics", "TopicConfig"]),
    Section("Groups", "`store.groups`", "flintlog.store.settings.groups", ["Groups", "GroupConfig"]),
    Section(
        "Subscriptions",
        "`store.subscriptions`",
        "flintlog.store.settings.subscriptions",
        ["Subscriptions", "Subscription"],
    ),
    Section("Cleaning", "`store.cleaning`", "flintlog.store.retention.queue_cleaning", ["Cleaning"]),
    Section("Recovery", "`store.recovery`", "flintlog.store.model.recovery_report", ["RecoveryReport"]),
    Section("Findings", "What verification and recovery give", "flintlog.checks.finding", ["Finding"]),
    Section("Timers", '`store.service("timer")`', "flintlog.services.timer.timer_service", ["TimerService"]),
    Section(
        "Transactions",
        '`store.service("transaction")`',
        "flintlog.services.transaction.transaction_service",
        ["TransactionService", "Transaction"],
    ),
    Section("Prometheus", "`pip install 'flintlog[metrics]'`", "flintlog.store.stats.prometheus", ["StoreCollector"]),
    Section("Testing", "`from flintlog.testing import …`", "flintlog.testing", testing.__all__),
    Section("Sessions of Spark", "`pip install 'flintlog[spark]'`", "flintlog.pipeline.session", ["get_session"]),
    Section("Rebuilding on Spark", "", "flintlog.pipeline.rebuild", ["rebuild", "RebuildReport"]),
    Section("Verifying on Spark", "", "flintlog.pipeline.verify", ["verify", "findings_frame"]),
    Section("SQL on Spark", "", "flintlog.pipeline.sql", ["query"]),
    Section(
        "Exporting on Spark", "", "flintlog.pipeline.export", ["export", "follow", "ExportOptions", "ExportReport"]
    ),
    Section("Reports on Spark", "", "flintlog.pipeline.report", ["report", "report_frames", "Report", "Frames"]),
)


def render() -> str:
    """The page."""
    return _HEAD + "".join(text for section in SECTIONS for text in _section(section))


def _section(section: Section) -> Iterator[str]:
    module = import_module(section.module)
    yield f"\n## {section.title}\n\nIn `{section.module}`"
    yield f": {section.about}.\n" if section.about else ".\n"
    for name in section.names:
        value = getattr(module, name)
        if isinstance(value, type):
            yield from _class(name, value, is_given=section.about.startswith("`store."))
        elif callable(value):
            yield f"\n### {name}\n\n{_signature(name, value)}\n{_docstring(value)}"
        else:
            yield f"\n### {name}\n\nA `{type(value).__name__}`.\n"


def _class(name: str, kind: type, *, is_given: bool) -> Iterator[str]:
    """A class; one that a store gives is not made by hand, so how it is made is not shown."""
    yield f"\n### {name}\n\n"
    is_given = is_given or "made by" in (inspect.getdoc(kind) or "")
    if not is_given and not issubclass(kind, enum.Enum) and kind is not StoreConfig:
        yield f"{_signature(name, kind)}\n"
    yield _docstring(kind)
    if issubclass(kind, enum.Enum):
        yield "\n" + ", ".join(f"`{member.name}`" for member in kind) + ".\n"
        return
    if kind is StoreConfig:
        yield "\nEvery [option](options.md) is a keyword and an attribute.\n"
    members = list(_members(kind))
    if kind is Store:
        members.sort(key=_place)
    for member_name, member in members:
        if isinstance(member, property):
            yield f"\n#### {name}.{member_name}\n\n{_property(member_name, member)}\n{_docstring(member)}"
        else:
            yield f"\n#### {name}.{member_name}\n\n{_signature(member_name, member)}\n{_docstring(member)}"


def _place(member: tuple[str, object]) -> int:
    """What people call first comes first; the rest follows in the order in which it is written."""
    name, _ = member
    return _FIRST_OF_STORE.index(name) if name in _FIRST_OF_STORE else len(_FIRST_OF_STORE)


def _members(kind: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties of ours, in the order in which they are written; not those of a public base."""
    seen: set[str] = set()
    for part in kind.__mro__:
        if part is not kind and part.__name__ in flintlog.__all__:
            return
        if not part.__module__.startswith("flintlog"):
            continue
        for name, value in vars(part).items():
            is_ours = isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)
            if name.startswith("_") or name in seen or not is_ours:
                continue
            seen.add(name)
            yield name, value if isinstance(value, property) else getattr(kind, name)


# ---------------------------------------------------------------------- signatures


class _AsWritten:
    """An annotation that shows itself without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(value: object) -> object:
    if value is inspect.Signature.empty:
        return value
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return _AsWritten(re.sub(r"\b(?:flintlog(?:\.\w+)+|collections\.abc|pathlib)\.", "", text))


def _default(value: object) -> object:
    """A default that says what it is; a function or an object would only say where it is."""
    return _AsWritten("...") if " at 0x" in repr(value) else value


def _signature(name: str, value: object) -> str:
    if not callable(value):
        raise TypeError(f"{name} cannot be called")
    try:
        found = inspect.signature(value)
    except ValueError:
        return _fenced(f"{name}(...)")
    plain = [
        one.replace(annotation=_annotation(one.annotation), default=_default(one.default))
        for one in found.parameters.values()
        if one.name not in ("self", "cls")
    ]
    result = inspect.Signature(plain, return_annotation=_annotation(found.return_annotation))
    if isinstance(value, type):
        result = result.replace(return_annotation=inspect.Signature.empty)
    line = f"{name}{result}"
    return _fenced(line if len(line) <= _WIDTH else _in_lines(name, plain, result.return_annotation))


def _in_lines(name: str, parameters: Sequence[inspect.Parameter], result: object) -> str:
    """A signature with a parameter a line."""
    lines, is_marked = [], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not is_marked:
            lines.append("    *,")
            is_marked = True
        is_marked = is_marked or one.kind is one.VAR_POSITIONAL
        lines.append(f"    {one},")
    end = "" if result is inspect.Signature.empty else f" -> {result!r}"
    return "\n".join([f"{name}(", *lines, f"){end}"])


def _property(name: str, value: property) -> str:
    result = _annotation(inspect.signature(value.fget).return_annotation) if value.fget else inspect.Signature.empty
    return _fenced(f"{name}: {result!r}" if result is not inspect.Signature.empty else name)


def _fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```\n"


# ---------------------------------------------------------------------- docstrings


def _docstring(value: object) -> str:
    """A docstring as Markdown; its examples become blocks of code."""
    parts = []
    for part in (inspect.getdoc(value) or "").split("\n\n"):
        prose, example = _split_example(part)
        if prose.strip():
            parts.append(prose)
        if example:
            parts.append(_fenced(example, "pycon").rstrip("\n"))
    return "\n\n".join(parts) + "\n" if parts else ""


def _split_example(paragraph: str) -> tuple[str, str]:
    lines = paragraph.split("\n")
    first = next((place for place, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
    return "\n".join(lines[:first]), "\n".join(lines[first:])
