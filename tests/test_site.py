"""The site, built as `make docs` builds it: every warning is an error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 300
"""It takes ten seconds, and minutes on a machine that does ten other things."""


def _build(target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--nitpicky", "--fail-on-warning", "--keep-going"]
    command += ["-c", str(ROOT / "docs" / "site"), str(ROOT), str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


@pytest.mark.timeout(TIMEOUT_S + 20)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = _build(tmp_path)
    assert done.returncode == 0, done.stderr
    front = (tmp_path / "README.html").read_text("utf-8")
    assert 'href="docs/reference/commands.html"' in front
    assert "https://" not in "".join(re.findall(r"<(?:script|link|img)[^>]*>", front)), "a page that needs the network"
