"""Opening a store once and stopping it again, so that everything that follows from its log is there and agrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.disk.medium import Medium

if TYPE_CHECKING:
    from flintlog.store.config import StoreConfig


def settle(root: Path, config: StoreConfig, medium: Medium, *, is_guessed: bool) -> tuple[int, int]:
    """Recover, build, stop cleanly; where the log ends, and how many queues there are. Nothing is put or deleted.

    `is_guessed`: no configuration was named. Then messages for light queues get theirs: a store that has none is not
    changed by it, and one that had them would otherwise lose them.
    """
    from flintlog.store.store import open_store

    quiet = config.with_changes(services=frozenset(), retention="off")
    if is_guessed:
        quiet = quiet.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    with open_store(root, quiet, medium=medium) as store:
        return store.recovery.log_end, len(store.queues())
