"""The page of findings: what `flintlog explain` says, all of it."""

from __future__ import annotations

from flintlog.checks.finding_kinds import KINDS

_HEAD = """# Findings

Made from `flintlog.checks.finding_kinds`; `make docs` writes it again.

What `flintlog verify`, `flintlog pipeline verify` and `store.recovery` may find. The ids are fixed: scripts may depend
on them. `flintlog explain ID` says the same at a terminal.

| finding | is |
|---|---|
"""


def render() -> str:
    """The page."""
    rows = "".join(f"| [`{kind.id}`](#{kind.id}) | {kind.title} |\n" for kind in KINDS.values())
    sections = (
        f"\n## {kind.id}\n\n**{kind.title}.**\n\n"
        f"- *Cause.* {kind.cause}\n- *Danger.* {kind.danger}\n- *Remedy.* {kind.remedy}\n"
        for kind in KINDS.values()
    )
    return _HEAD + rows + "".join(sections)
