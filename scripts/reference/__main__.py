"""Write every page of the reference that is not what the code gives."""

from __future__ import annotations

import sys

from scripts.reference import FOLDER, PAGES

for name, render in PAGES.items():
    page, text = FOLDER / name, render()
    if not page.exists() or page.read_text("utf-8") != text:
        page.write_text(text, "utf-8")
        sys.stdout.write(f"written: docs/reference/{name}\n")
