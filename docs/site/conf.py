"""How the site is made: Sphinx over the Markdown files of this repository, as they are.

The pages are plain Markdown that any viewer shows: the contents below are the only thing that the site adds. Sources
are the whole repository, so that a link from a page to the README or the changes works here as it does there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

from flintlog.version import VERSION  # noqa: E402 - the path is set just above

project = "flintlog"
author = "the flintlog contributors"
version = release = VERSION
language = "en"

extensions = ["myst_parser"]
myst_heading_anchors = 4
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "interop", "benchmarks", "examples", "scripts"]

html_theme = "furo"
html_title = f"flintlog {VERSION}"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_extra_path = ["front"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

CONTENTS = {
    "Begin": ["docs/start", "docs/concepts", "docs/beside-others"],
    "Guides": [
        "docs/guides/embed",
        "docs/guides/programs",
        "docs/guides/history",
        "docs/guides/rescue",
        "docs/guides/lakehouse",
        "docs/guides/notebook",
        "docs/guides/spark-submit",
        "docs/guides/object-storage",
        "docs/guides/replicate",
        "docs/services",
        "docs/mending",
        "docs/pipeline",
    ],
    "Reference": [
        "docs/reference/commands",
        "docs/reference/options",
        "docs/reference/api",
        "docs/reference/findings",
        "docs/reference/errors",
    ],
    "Internals": [
        "docs/architecture",
        "docs/durability",
        "docs/dispatch",
        "docs/recovery",
        "docs/inspection",
        "docs/replication",
        "docs/formats",
        "docs/differences-from-rocketmq",
        "docs/decisions/README",
        "docs/benchmarks",
        "CONTRIBUTING",
    ],
    "More": ["docs/index", "CHANGELOG"],
}


def add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Give the front page the contents of the site, and the list of decisions its pages."""
    if page == root_doc:
        for title, pages in CONTENTS.items():
            names = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{names}\n```\n"
    elif page == "docs/decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", add_contents)
