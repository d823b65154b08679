"""The golden stores as the format tests see them: bytes of files, and lines of truth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# name -> (folder of the store, file with its messages), both below the case's folder
_WHOLE_STORES = {
    "plain": ("plain/store", "plain/manifest.jsonl"),
    "batch": ("batch/store", "batch/manifest.jsonl"),
    "transaction": ("transaction/store", "transaction/manifest.jsonl"),
    "multi": ("multi/store", "multi/manifest.jsonl"),
    "cqext": ("cqext/store", "cqext/manifest.jsonl"),
    "delay": ("delay/store", "delay/manifest.jsonl"),
    "ha-master": ("ha/master", "ha/master.manifest.jsonl"),
    "ha-slave": ("ha/slave", "ha/slave.manifest.jsonl"),
    "crash-before": ("crash/before/store", "crash/manifest.jsonl"),
    "crash-after": ("crash/after/store", "crash/after/manifest.jsonl"),
}
# Damage that touches no message of the log.
_HARMLESS = ("garbage", "nocheckpoint", "nocq", "nocqindex", "noindex", "stale", "zerolast")
_RECOVERED = (*_HARMLESS, "flip", "truncated")
_TORN = {f"torn-{name}-before": (f"torn/{name}/before/store", "torn/manifest.jsonl") for name in _HARMLESS} | {
    f"torn-{name}-after": (f"torn/{name}/after/store", f"torn/{name}/after/manifest.jsonl") for name in _RECOVERED
}
_SOUND = _WHOLE_STORES | _TORN
_DAMAGED = {
    f"torn-{name}-before": (f"torn/{name}/before/store", "torn/manifest.jsonl") for name in ("flip", "truncated")
}


@dataclass(frozen=True)
class GoldenStore:
    """One store directory and what the Java store said it holds."""

    root: Path
    manifest: Path

    def messages(self) -> list[dict[str, Any]]:
        return read_lines(self.manifest)

    def log(self) -> dict[int, bytes]:
        return {int(path.name): path.read_bytes() for path in (self.root / "commitlog").iterdir()}

    def queue_lines(self) -> list[dict[str, Any]]:
        return read_lines(self.manifest.with_name("queues.jsonl"))

    def damage(self) -> dict[str, Any]:
        damage: dict[str, Any] = json.loads((self.root / "../../damage.json").read_text())
        return damage

    def files(self, folder: str) -> Iterator[Path]:
        return (path for path in sorted((self.root / folder).rglob("*")) if path.is_file())


OpenGolden = Callable[[str], GoldenStore]


def read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def golden_store(golden: Callable[[str], Path]) -> OpenGolden:
    def find(name: str) -> GoldenStore:
        store, manifest = (_SOUND | _DAMAGED)[name]
        folder = golden(store.split("/")[0]).parent
        return GoldenStore(folder / store, folder / manifest)

    return find


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`store_name` runs a test over every golden store whose log is sound."""
    if "store_name" in metafunc.fixturenames:
        metafunc.parametrize("store_name", list(_SOUND))
