"""Config files: RocketMQ's broker.conf (Java properties), JSON or TOML, by the name's suffix.

`load_values` returns names and values as they are in the file; `StoreConfig` knows which names exist. JSON and TOML are
flat: they may contain an object only where an option is a mapping.
"""

from __future__ import annotations

import json
import os
import re
import tomllib

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import local_path
from flintlog.errors import DiskError, InvalidConfig

_MAX_BYTES = 1024 * 1024
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def load_values(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read a file's options."""
    file = local_path(path)
    try:
        text = LocalMedium().read(file, _MAX_BYTES).decode("utf-8")
        return parse_values(text, file.suffix.lower())
    except DiskError as error:
        raise InvalidConfig(f"cannot read the config: {error.what}", path=path) from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"cannot parse the config: {error}", path=path) from error


def parse_values(text: str, suffix: str) -> dict[str, object]:
    """Parse a config text by its file's suffix; properties unless `.json` or `.toml`."""
    if suffix == ".json":
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("expected an object of options")
        return values
    if suffix == ".toml":
        return tomllib.loads(text)
    return dict(parse_properties_file(text))


def parse_properties_file(text: str) -> dict[str, str]:
    """Parse Java properties: `name = value`, comments with # or !, lines continued by a backslash, escapes.

    >>> parse_properties_file("# broker\\ndeleteWhen=04\\nfileReservedTime : 48")
    {'deleteWhen': '04', 'fileReservedTime': '48'}
    """
    values = {}
    for line in _logical_lines(text):
        match = _ENTRY.match(line)
        if match is not None:
            values[_unescape(match[1])] = _unescape(match[2]).strip()
    return values


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPED.sub(replace, text)
