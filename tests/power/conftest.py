"""Loop devices for the tests of power cuts: they need root, and fail in CI where there are none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.power.device import Device, DeviceError, device

MakeDevice = Callable[..., Device]
IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def make_device() -> Iterator[MakeDevice]:
    """`make_device(size_mib=…)` gives another mounted device. Images are kept in memory where there is such a place."""
    folder = Path(tempfile.mkdtemp(prefix="flintlog-power-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    with ExitStack() as devices:

        def make(size_mib: int = 256) -> Device:
            try:
                return devices.enter_context(device(Path(tempfile.mkdtemp(dir=folder)), size_mib))
            except (DeviceError, OSError) as error:
                reason = f"no loop device can be mounted here: {error}"
                assert not os.environ.get("CI"), reason
                pytest.skip(reason)

        yield make
    shutil.rmtree(folder, ignore_errors=True)
