"""Names in a directory under which there is no file: a directory, or a link that leads nowhere."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def odd_names(directory: Path) -> dict[str, str]:
    """Each with what is there instead; only a local disk has any."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            path = directory / name
            if not os.path.exists(path):
                found[name] = "a link that leads nowhere"
            elif os.path.isdir(path):
                found[name] = "a directory"
    return found
