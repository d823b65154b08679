from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flintlog import kernel
from flintlog.kernel import reference

PRINT_NAME = "from flintlog import kernel; print(kernel.name)"


def chosen(script: str, **environment: str) -> str:
    path = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_the_plain_kernel_can_be_asked_for() -> None:
    assert chosen(PRINT_NAME, FLINTLOG_KERNEL="reference") == "reference"


def test_the_plain_kernel_is_taken_where_the_native_one_was_not_built() -> None:
    hide = "import sys; sys.modules['flintlog.kernel.native'] = None; "
    assert chosen(hide + PRINT_NAME, FLINTLOG_KERNEL="") == "reference"


@pytest.mark.parametrize("name", reference.__all__)
def test_both_kernels_have_the_same_names(twin: object, name: str) -> None:
    assert hasattr(twin, name)
    assert hasattr(kernel, name)
