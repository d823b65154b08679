"""The readable log as a stream of Structured Streaming, for the job `dispatch` alone.

    offset      {"end": 81920, "is_record": true}      how far batches go; whether a record begins there
    partition   a split of the log
    row         what its task derived (`dispatch_tasks.py`), as bytes

An offset is the store's readable end, or less if the lag is large. Spark's checkpoint is new with every start: the
journal says where to continue.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from flintlog.disk.media.local import LocalMedium
from flintlog.pipeline.building.dispatch_tasks import DispatchPlan, RangeGroup, derive_group, plan_groups
from flintlog.store.dispatch.external.dispatch_claim import newest_name
from flintlog.store.dispatch.external.dispatch_journal import ReadableEndFile

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

NAME = "flintlog-dispatch"
Position = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """The driver's request, passed as one option."""

    plan: DispatchPlan
    epoch: int
    start: int
    max_bytes: int
    cores: int

    def to_option(self) -> str:
        return b64encode(pickle.dumps(self)).decode()

    @classmethod
    def from_option(cls, text: str) -> Asked:
        found = pickle.loads(b64decode(text))
        assert isinstance(found, cls)
        return found


class DispatchSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "derived binary"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options: Mapping[str, str] = self.options
        return DispatchReader(Asked.from_option(options["asked"]))


class RangePartition(InputPartition):
    """The work of one Spark task."""

    def __init__(self, group: RangeGroup) -> None:
        super().__init__(group)


class DispatchReader(DataSourceStreamReader):
    """Runs in one process of the driver; only `read` runs in tasks."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._last: Position = {"end": asked.start, "is_record": True}

    def initialOffset(self) -> Position:  # noqa: N802 - Spark's name
        return self._last

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Position | None = None, limit: ReadLimit | None = None
    ) -> Position:
        asked, last = self._asked, self._last if start is None else start
        readable = ReadableEndFile(asked.plan.paths.dispatch, LocalMedium()).load()
        if readable is None or readable.epoch != asked.epoch or readable.end <= last["end"]:
            return last
        most = last["end"] + asked.max_bytes
        return {"end": min(readable.end, most), "is_record": readable.end <= most}

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        self._last = end
        plan = self._asked.plan
        plan = replace(plan, claim=newest_name(plan.claim, plan.paths.dispatch, LocalMedium()))
        is_record = bool(start["is_record"])
        groups = plan_groups(plan, start["end"], end["end"], cores=self._asked.cores, is_record=is_record)
        return [RangePartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        for derived in derive_group(partition.value):
            yield (pickle.dumps(derived),)
