"""Removing what nobody needs any more, where a failure to remove it must not undo what has been done.

After a commit its working files are leftovers. An attempt of a task that lost may still write among them, and then a
directory that was just emptied is not empty. It is tried a few times; what stays is logged and left to the next run.
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
    """Remove a directory with all that is in it; False if some of it stays."""
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
    """Remove a directory if there is nothing in it; one that somebody writes into stays."""
    with suppress(OSError):
        os.rmdir(path)
