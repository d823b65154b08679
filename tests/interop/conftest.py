"""What the interoperability tests share: the real Java store, and a look at a directory's bytes.

Where Java, Maven or the network is missing these tests cannot run; that is said once for each, with the reason. In
CI (the variable CI is `true`) it is a failure: there they must run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.errors import MissingExtra
from interop.java_runtime import JavaRuntime, java_runtime

# What follows from the messages alone; the other files of a store hold times and process ids.
_MESSAGE_DIRECTORIES = ("commitlog", "consumequeue", "batchconsumequeue", "index")

Digest = Callable[[Path], dict[str, str]]


@pytest.fixture(scope="session")
def java() -> JavaRuntime:
    """The Java side, ready to run."""
    try:
        return java_runtime()
    except MissingExtra as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the interoperability tests must run in CI: {missing}", pytrace=False)
        pytest.skip(f"no real RocketMQ to test against: {missing}")


@pytest.fixture
def digest() -> Digest:
    """`digest(store)` is the SHA-256 of each file that holds messages, queues or the index."""
    return _digest


def _digest(store: Path) -> dict[str, str]:
    files = [file for name in _MESSAGE_DIRECTORIES for file in sorted((store / name).rglob("*")) if file.is_file()]
    return {str(file.relative_to(store)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
