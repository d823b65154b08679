"""Draw the rooms of the package, their folders and their import order: `docs/images/rooms.svg`.

    python -m scripts.rooms

The order is the one that `tests/test_rooms.py` enforces; folders, modules and imports are read off the code.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Final

from tests.test_rooms import FOLDERS, ROOMS

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "flintlog"
PICTURE: Final = ROOT / "docs" / "images" / "rooms.svg"

WIDTH: Final = 980
MARGIN: Final = 16
NAME_WIDTH: Final = 150
LETTER: Final = 7.3
"""Width of a letter of the monospaced font, in pixels."""
CHIP_HEIGHT: Final = 24
LINE: Final = 18

STYLE: Final = """
  text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1f2328 }
  .name { font: 600 15px ui-monospace, monospace }
  .chip { font: 12px ui-monospace, monospace }
  .quiet { fill: #59636e; font-size: 12px }
  .room { fill: #f6f8fa; stroke: #d1d9e0 }
  .folder { fill: #ddf4ff; stroke: #54aeff }
  .module { fill: #ffffff; stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .quiet { fill: #9198a1 } .room { fill: #151b23; stroke: #3d444d }
    .folder { fill: #0c2d6b; stroke: #388bfd } .module { fill: #0d1117; stroke: #3d444d }
  }
"""


def render() -> str:
    """The drawing, as SVG."""
    y, parts = MARGIN + LINE, []
    parts.append(_text(MARGIN, y, "A room imports only rooms above it; a folder only folders before it.", "quiet"))
    y += LINE // 2
    for room in ROOMS:
        drawn, height = _draw_room(room, y)
        parts.append(drawn)
        y += height + 8
    size = f'width="{WIDTH}" height="{y + MARGIN - 8}" viewBox="0 0 {WIDTH} {y + MARGIN - 8}"'
    title = "<title>The rooms of flintlog, their folders, and what each room imports</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{title}<style>{STYLE}</style>'
    return f"{head}\n{''.join(parts)}</svg>\n"


def _draw_room(room: str, top: int) -> tuple[str, int]:
    left = MARGIN + NAME_WIDTH
    lines = wrap(_purpose(room), 118)
    y = top + 24
    inside = [_text(MARGIN + 12, y, room, "name")]
    for line in lines:
        inside.append(_text(left, y, line))
        y += LINE
    chips, y = _draw_chips(room, left, y - 4)
    inside += chips
    inside.append(_text(left, y + 12, f"imports {', '.join(_imports(room)) or 'nothing of flintlog'}", "quiet"))
    height = y + 12 + 12 - top
    box = f'<rect class="room" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="6"/>\n'
    return box + "".join(inside), height


def _draw_chips(room: str, left: int, top: int) -> tuple[list[str], int]:
    """The folders and modules at the top of a room, in the order of their imports."""
    x, y, drawn = left, top, []
    for name in FOLDERS.get(room, ()):
        is_folder = (PACKAGE / room / name).is_dir()
        label = f"{name}/" if is_folder else f"{name}.py"
        width = int(len(label) * LETTER) + 16
        if x + width > WIDTH - MARGIN - 12:
            x, y = left, y + CHIP_HEIGHT + 6
        kind = "folder" if is_folder else "module"
        drawn.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{CHIP_HEIGHT}" rx="4"/>')
        drawn.append(_text(x + 8, y + 16, label, "chip"))
        x += width + 6
    return drawn, y + CHIP_HEIGHT + 6 if drawn else y


def _text(x: int, y: int, text: str, kind: str = "line") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>\n'


def _purpose(room: str) -> str:
    """The first sentence of the room's docstring."""
    opening = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))) or ""
    return opening.split("\n\n")[0].replace("\n", " ").replace("`", "")


def _imports(room: str) -> list[str]:
    """The rooms that a room imports, in order; one further up is named for type checkers alone."""
    used = {name for path in (PACKAGE / room).rglob("*.py") for name in _rooms_named(path)}
    return [other for other in ROOMS[: ROOMS.index(room)] if other in used]


def _rooms_named(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("flintlog"):
            yield node.module.split(".")[1] if "." in node.module else node.names[0].name


if __name__ == "__main__":
    PICTURE.write_text(render(), "utf-8")
    sys.stdout.write(f"written: {PICTURE.relative_to(ROOT)}\n")
