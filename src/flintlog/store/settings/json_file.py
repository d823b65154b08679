"""One file of a store's `config` folder, and the `.bak` beside it.

    save      old content ─▶ name.bak      new content ─▶ name         each replaced as a whole
    load      name; if that is missing, does not parse or has another shape, name.bak

If the `.bak` was used, `store.recovery` has a finding. If neither can be used, both files are left as they are, to be
repaired. The consequence depends on the file:

    topics, groups, offsets, delay levels, filters      `load` raises, and the store or the service does not open
    mere statistics (timermetrics,                      `load_figures` reports a finding; they begin at 0, and are
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
    """The content of a config file, and whether it comes from the backup."""

    value: JsonObject
    data: bytes
    is_backup: bool


def read_config(path: Path, medium: Medium, accept: Accept | None = None) -> ConfigContent | None:
    """The content that counts, for stores and for commands; None when there is none yet."""
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
    """Loads and saves one config file. `findings` has what the last load reports."""

    def __init__(
        self,
        path: Path,
        medium: Medium,
        *,
        pretty: bool = True,
        before_save: Callable[[], None] | None = None,
        is_trial: bool = False,
    ) -> None:
        """`before_save` may refuse a save by an error. A trial logs nothing: the load that follows it does."""
        self.path = path
        self.backup = path.with_name(path.name + BACKUP_SUFFIX)
        self.findings: tuple[Finding, ...] = ()
        self._medium = medium
        self._pretty = pretty
        self._before_save = before_save
        self._is_trial = is_trial
        self.share: Callable[[JsonValue], None] | None = None
        """Brings a new content to a ledger's group before it is written here, or refuses it by an error."""
        self._saved: bytes | None = None
        self._is_left_alone = False

    @property
    def exists(self) -> bool:
        """Whether there is anything to load."""
        return self._medium.exists(self.path) or self._medium.exists(self.backup)

    def load(self, accept: Accept | None = None) -> JsonObject | None:
        """The content; None when there is none yet, or when the file is empty, because its first save did not finish.

        `accept` checks the content and may raise.
        """
        self.findings = ()
        found = read_config(self.path, self._medium, accept)
        if found is None:
            return None
        if found.is_backup:
            self.warn("%s is missing or does not parse: its backup %s is used", self.path, self.backup.name)
            self.findings = (self._restored(),)
        else:
            self._saved = found.data
        return found.value

    def warn(self, text: str, *values: object) -> None:
        """Log something about the content, once: not in a trial."""
        if not self._is_trial:
            log.warning(text, *values)

    def load_figures(self, accept: Accept | None = None) -> JsonObject | None:
        """`load` for statistics: if neither file can be used, there are none, and both are left as they are."""
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
        """Write the content if it has changed; whether anything was written."""
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
        """Write the group's content if it has changed; whether it has."""
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
    """The finding of an opening that goes on although neither a config file nor its backup can be used."""
    remedy = "repair it, or move it away to begin anew"
    return Finding(
        "damaged-config",
        "error",
        f"{path.name}: {error.what}",
        f"{remedy}; {meanwhile}" if meanwhile else remedy,
        file=str(path),
    )


def check_objects(content: JsonObject, *names: str) -> None:
    """Raise if one of these members of a content is no object."""
    for name in names:
        if not isinstance(content.get(name, {}), dict):
            raise FormatError(f"{name} is no object")
