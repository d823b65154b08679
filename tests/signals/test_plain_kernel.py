"""The same interruptions with the plain kernel, in which more of a put is Python code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flintlog import kernel

KINDS = ["plain, async", "hook, async"]


@pytest.mark.skipif(kernel.name == "reference", reason="the other tests of this folder run with it already")
def test_puts_are_interrupted_in_the_plain_kernel_too() -> None:
    place = "tests/signals/test_every_point.py::test_a_put_that_is_interrupted_at_some_points"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"{place}[{kind}]" for kind in KINDS)]
    environment = {**os.environ, "FLINTLOG_KERNEL": "reference"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
