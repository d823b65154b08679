"""The pages of the reference, each made from the code that it is about.

`python -m scripts.reference` (part of `make docs`) writes them to `docs/reference`; tests compare what lies there with
what the code gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import api, commands, errors, findings, options

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "options.md": options.render,
    "commands.md": commands.render,
    "findings.md": findings.render,
    "errors.md": errors.render,
    "api.md": api.render,
}
