"""How much memory a benchmark may touch before it measures."""

from __future__ import annotations

from pathlib import Path

from flintlog.bench.run import free_memory


def test_a_containers_limit_is_kept(tmp_path: Path) -> None:
    unlimited, limited = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    unlimited.write_text("max\n")
    limited.write_text("4194304\n")
    everything = free_memory(())
    assert free_memory((tmp_path / "none", unlimited)) > everything // 2
    assert free_memory((unlimited, limited)) == 2 * 1024 * 1024
