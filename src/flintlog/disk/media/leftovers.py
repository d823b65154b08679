"""Removes working files after a commit. A failure to remove them must not fail the commit.

A failed attempt of a task may still write into the directory, so that it is not empty any more. Removal is tried a few
times; files that remain are logged and left to the next run.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskError

ATTEMPTS: Final = 4
WAIT_S: Final = 0.05

log = logging.getLogger(__name__)


def remove_leftovers(path: Path, medium: Medium) -> bool:
    """Remove a directory and its content; False if some of it remains."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(WAIT_S)
        try:
            medium.remove_tree(path)
        except DiskError as error:
            last = error
        else:
            return True
    log.warning("some leftovers stay: %s", last)
    return False


def remove_empty(path: Path) -> None:
    """Remove a directory if it is empty."""
    with suppress(OSError):
        os.rmdir(path)
