"""A store that is being opened: what the steps of its recovery share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from flintlog.store.components import Components
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.dispatch_journal import Published
from flintlog.store.model.recovery_report import Finding
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.recovery.stop_marker import StopMarker
from flintlog.store.runtime.jobs import Progress


@dataclass(slots=True)
class Opening:
    """One opening, after everything was loaded and before anything is written. Belongs to the thread that opens."""

    parts: Components
    config: StoreConfig
    dispatcher: Dispatcher
    marker: StopMarker
    clean: bool
    """Whether the last stop was a clean one."""
    mark_unclean: Callable[[], None]
    progress: Progress | None = None
    read_only: bool = False
    is_durable: bool = False
    """Whether the last stop has synced every file, and said so."""
    log_end: int | None = None
    """Where the log ends whatever follows: its group has committed, or a writer beside has published, so much."""
    is_beside_writer: bool = False
    """Whether another process writes the store; what it derives from the log may be half done."""
    published: Published | None = None
    is_others: bool = False
    """Whether only the log is believed, because another program derived the rest."""
    log_min: int = field(init=False)
    findings: list[Finding] = field(init=False, default_factory=list)
    _is_marked: bool = field(init=False)

    def __post_init__(self) -> None:
        self.log_min = max(0, self.parts.segments.min_offset)
        self._is_marked = not self.clean

    def mark(self) -> None:
        """Mark the store as not cleanly stopped: from here on a crash leaves something half done."""
        if not self._is_marked:
            self._is_marked = True
            self.mark_unclean()

    def note(self, kind: str, evidence: str, remedy: str) -> None:
        """Add a finding about queues or index. Beside a writer there is none: it may not have derived them yet."""
        if not self.is_beside_writer:
            self.findings.append(Finding(kind, "warning", evidence, remedy))
