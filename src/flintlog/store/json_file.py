"""One file of a store's `config` folder, and the `.bak` beside it.

    save      old content ─▶ name.bak      new content ─▶ name         each replaced as a whole
    load      name, and when that is missing or does not parse, name.bak, and that is said

A crash between the two steps leaves the old content under both names. When neither parses, loading raises and nothing
is written: whatever can still be read out of the two files stays there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from flintlog.disk.medium import Medium
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.config_json import JsonObject, JsonValue, encode_config_json, parse_config_object

log = logging.getLogger(__name__)

BACKUP_SUFFIX = ".bak"
MAX_BYTES = 256 * 1024 * 1024


class JsonFile:
    """Loads and saves one config file; `restored` says that the last load took the `.bak`."""

    def __init__(
        self, path: Path, medium: Medium, *, pretty: bool = True, before_save: Callable[[], None] | None = None
    ) -> None:
        """`before_save` may refuse a save by an error."""
        self.path = path
        self.backup = path.with_name(path.name + BACKUP_SUFFIX)
        self.restored = False
        self._medium = medium
        self._pretty = pretty
        self._before_save = before_save
        self._saved: bytes | None = None

    def load(self) -> JsonObject | None:
        """The content; None when there is none yet. An empty file is one that was never finished."""
        self.restored = False
        broken: FormatError | None = None
        for path in (self.path, self.backup):
            data = self._medium.read(path, MAX_BYTES) if self._medium.exists(path) else b""
            if not data.strip():
                continue
            try:
                found = parse_config_object(data)
            except FormatError as error:
                broken = broken or error
                continue
            self.restored = path is self.backup
            if self.restored:
                log.warning("%s is missing or does not parse: its backup %s is used", self.path, self.backup.name)
            else:
                self._saved = data
            return found
        if broken is None:
            return None
        raise DamagedStore(
            f"neither this file nor its backup parses: {broken.what}",
            path=self.path,
            advice="nothing was changed; repair it, or move both away to begin anew",
        )

    def save(self, value: JsonValue) -> bool:
        """Write the content, if it is not the one that is there; whether anything was written."""
        if self._before_save is not None:
            self._before_save()
        data = encode_config_json(value, pretty=self._pretty)
        if data == self._saved:
            return False
        self._medium.make_directories(self.path.parent)
        if self._saved is not None:
            self._medium.replace(self.backup, self._saved)
        self._medium.replace(self.path, data)
        self._saved = data
        return True
