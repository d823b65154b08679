"""What all tests share: the golden stores, written by the real RocketMQ 5.5.0, and how chance is drawn."""

from __future__ import annotations

import fcntl
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

_ARCHIVES = Path(__file__).parent / "golden"

Golden = Callable[[str], Path]

settings.register_profile("the same", derandomize=True)


def pytest_configure(config: pytest.Config) -> None:
    """`make test` answers for a change, so its random examples are the same each time; other runs look for new ones."""
    if config.option.markexpr == "not slow":
        settings.load_profile("the same")


def _extract_once(case: str, folder: Path) -> Path:
    """Unpack under a file lock, into another name first: several test workers share the folder."""
    target = folder / case
    with open(folder / f"{case}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = folder / f"{case}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            with tarfile.open(_ARCHIVES / f"{case}.tar.xz") as archive:
                archive.extractall(partial, filter="data")
            os.rename(partial / case, target)
            shutil.rmtree(partial)
    return target


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """`golden("plain")` is that case's folder, unpacked once a session. Read only: copy it before writing."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "golden"
    folder.mkdir(exist_ok=True)
    return lambda case: _extract_once(case, folder)
