"""One file of a store's `config` folder, and the `.bak` beside it.

    save      old content ─▶ name.bak      new content ─▶ name         each replaced as a whole
    load      name, and when that is missing, does not parse or has another shape, name.bak

One rule for all of them. That a `.bak` was used is a finding, and stands in `store.recovery`. When neither can be used,
nothing is ever written over them: whatever can still be read out of the two files stays there. What then happens
depends on what the file is for:

    topics, groups, offsets, delay levels, filters      `load` raises, and the store or the service does not open
    figures that decide nothing (timermetrics,          `load_figures` says so in a finding; they begin anew, and are
    transactionMetrics)                                 not saved until the file was repaired or moved away

A crash between the two steps of a save leaves the old content under both names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flintlog.checks.finding import Finding
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.config_json import JsonObject, JsonValue, encode_config_json, parse_config_object
from flintlog.format.names import BACKUP_SUFFIX

log = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024 * 1024

Accept = Callable[[JsonObject], object]
"""Raises `FormatError` or `DamagedStore` for a content that cannot be used."""


@dataclass(frozen=True, slots=True)
class ConfigContent:
    """What a config file holds, and whether that is from its backup."""

    value: JsonObject
    data: bytes
    is_backup: bool


def read_config(path: Path, medium: Medium, accept: Accept | None = None) -> ConfigContent | None:
    """The content that counts, for who opens a store and for who only looks; None when there is none yet."""
    broken: FormatError | DamagedStore | None = None
    for place in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        data = medium.read(place, MAX_BYTES) if medium.exists(place) else b""
        if not data.strip():
            continue
        try:
            found = parse_config_object(data)
            if accept is not None:
                accept(found)
        except (FormatError, DamagedStore) as error:
            broken = broken or error
            continue
        return ConfigContent(found, data, is_backup=place is not path)
    if broken is None:
        return None
    raise DamagedStore(
        f"neither this file nor its backup parses: {broken.what}",
        path=path,
        advice="nothing was changed; repair it, or move both away to begin anew",
    )


class JsonFile:
    """Loads and saves one config file. What the last load found wrong is in `findings`."""

    def __init__(
        self, path: Path, medium: Medium, *, pretty: bool = True, before_save: Callable[[], None] | None = None
    ) -> None:
        """`before_save` may refuse a save by an error."""
        self.path = path
        self.backup = path.with_name(path.name + BACKUP_SUFFIX)
        self.findings: tuple[Finding, ...] = ()
        self._medium = medium
        self._pretty = pretty
        self._before_save = before_save
        self.share: Callable[[JsonValue], None] | None = None
        """Brings a new content to a ledger's group before it is written here, or refuses it by an error."""
        self._saved: bytes | None = None
        self._is_left_alone = False

    @property
    def exists(self) -> bool:
        """Whether there is anything to load."""
        return self._medium.exists(self.path) or self._medium.exists(self.backup)

    def load(self, accept: Accept | None = None) -> JsonObject | None:
        """The content; None when there is none yet. An empty file is one that was never finished.

        `accept` looks at the content before it is taken.
        """
        self.findings = ()
        found = read_config(self.path, self._medium, accept)
        if found is None:
            return None
        if found.is_backup:
            log.warning("%s is missing or does not parse: its backup %s is used", self.path, self.backup.name)
            self.findings = (self._restored(),)
        else:
            self._saved = found.data
        return found.value

    def load_figures(self, accept: Accept | None = None) -> JsonObject | None:
        """`load` for figures: when nothing can be made of the file, there are none, and it is left as it is."""
        try:
            return self.load(accept)
        except DamagedStore as damage:
            log.warning("the figures begin anew, and are not saved: %s", damage)
            self._is_left_alone = True
            self.findings = (broken_finding(self.path, damage, "its figures begin anew, and are not saved meanwhile"),)
            return None

    def _restored(self) -> Finding:
        return Finding(
            "config-restored",
            "warning",
            f"{self.path.name} is missing or does not parse",
            f"its backup {self.backup.name} is used",
            file=str(self.path),
        )

    def save(self, value: JsonValue) -> bool:
        """Write the content, if it is not the one that is there; whether anything was written."""
        if self._is_left_alone:
            return False
        if self._before_save is not None:
            self._before_save()
        data = encode_config_json(value, pretty=self._pretty)
        if data == self._saved:
            return False
        if self.share is not None:
            self.share(value)
        return self._write(data)

    def adopt(self, value: JsonValue) -> bool:
        """Write the content that the group has; whether it is another one."""
        data = encode_config_json(value, pretty=self._pretty)
        return data != self._saved and self._write(data)

    def _write(self, data: bytes) -> bool:
        self._medium.make_directories(self.path.parent)
        if self._saved is not None:
            self._medium.replace(self.backup, self._saved)
        self._medium.replace(self.path, data)
        self._saved = data
        return True


def broken_finding(path: Path, error: DamagedStore, meanwhile: str = "") -> Finding:
    """Neither a config file nor its backup can be used, and the store is open all the same."""
    remedy = "repair it, or move it away to begin anew"
    return Finding(
        "damaged-config",
        "error",
        f"{path.name}: {error.what}",
        f"{remedy}; {meanwhile}" if meanwhile else remedy,
        file=str(path),
    )


def check_objects(content: JsonObject, *names: str) -> None:
    """Raise unless these members of a content, where it has them, are objects."""
    for name in names:
        if not isinstance(content.get(name, {}), dict):
            raise FormatError(f"{name} is no object")
