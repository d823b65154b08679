"""Plans for the tasks of a rebuild, with small files."""

from __future__ import annotations

from pathlib import Path

from flintlog.format.index_file import IndexLayout
from flintlog.pipeline.building.rebuild_scan import BuildPlan


def make_plan(root: Path, layout: IndexLayout) -> BuildPlan:
    return BuildPlan(
        str(root / "staged"),
        str(root / "spill"),
        consume_queue_bytes=1000,
        batch_queue_bytes=460,
        extension_bytes=None,
        topic_queue_types={},
        delay_levels_ms=(),
        lmq=False,
        index=layout,
    )
