"""A dispatcher outside the store, in a thread of the test: what the job on Spark does, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flintlog import StoreConfig
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import StoreInUse
from flintlog.pipeline.building.dispatch_core import DispatchCore
from flintlog.store.dispatch.external.dispatch_claim import is_wanted


@contextmanager
def dispatching(
    root: Path, config: StoreConfig, medium: Medium | None = None, *, batch_bytes: int = 1 << 20
) -> Iterator[list[Exception]]:
    """One is at work; what made it fail is in the list."""
    stop = threading.Event()
    failures: list[Exception] = []
    disk = LocalMedium() if medium is None else medium

    def run() -> None:
        while not stop.is_set():
            try:
                with DispatchCore(root, config, disk) as core:
                    while not stop.wait(0.002) and not core.is_wanted:
                        core.advance(batch_bytes)
            except StoreInUse:  # the store has it now
                pass
            except Exception as error:  # noqa: BLE001 - the test looks at it
                failures.append(error)
                return
            while is_wanted(root / "dispatch", disk) and not stop.wait(0.002):
                pass

    thread = threading.Thread(target=run, name="outside", daemon=True)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()
