"""The driver of dispatch on Spark: it plans, has tasks write queues and index, and publishes. It writes neither.

    start     set queues and index back to the journal                                           1 task
    batch     read splits: plain queue entries, each at its place (`dispatch_tasks.py`)          a task for each
              do the splits meet, and does each queue continue where it ended?                   the driver
              index, batch queues, queues with an extension (`dispatch_ordered.py`)              a few tasks
              or, if not: everything again, by the store's own rules                             1 task
              one frame into the journal                                                         the driver

Before a result of ordered work is published, the claim is renewed: from then on no attempt of these tasks writes, also
none that Spark has given up and that still runs. If another attempt began after the one that made the result, the work
is done once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

from flintlog.derive.chains import Span, join_reaches, join_spans
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import JobFailed
from flintlog.format.queue_entry import ENTRY_SIZE, QueueKey
from flintlog.pipeline.building.dispatch_core import Publisher
from flintlog.pipeline.building.dispatch_ordered import (
    Applied,
    IndexTask,
    OrderedTask,
    RedoTask,
    apply_ordered,
    is_last_attempt,
    queue_tasks,
)
from flintlog.pipeline.building.dispatch_tasks import Derived, DispatchPlan
from flintlog.pipeline.spark.tasks import count_of
from flintlog.store.dispatch.external.dispatch_journal import QueueMark
from flintlog.store.options.store_config import StoreConfig

_TRIES: Final = 5


class Runner(Protocol):
    """Runs a function of each task; Spark does it in other processes."""

    def __call__(
        self, function: Callable[[OrderedTask], Applied], tasks: Sequence[OrderedTask], doing: str
    ) -> list[Applied]: ...


class DispatchDriver(Publisher):
    """One driver at work on one store. Belongs to one thread at a time."""

    def __init__(self, root: Path, config: StoreConfig, medium: LocalMedium, run: Runner, cores: int = 1) -> None:
        super().__init__(root / "dispatch", medium)
        self._medium = medium
        self._run = run
        self._cores = cores
        try:
            self._plan = DispatchPlan.of(root, config, medium, self.claim)
            medium.remove_tree(Path(self._plan.build.spill))  # what an earlier dispatcher left
            published = self._journal.load()
            if published is not None:
                self.progress = published
                redo = RedoTask(self._plan, published, published.end, published.end)
                self._do([redo], "set queues and index back to the journal")
        except BaseException:
            self.close()
            raise

    @property
    def plan(self) -> DispatchPlan:
        """The plan of its tasks, under the present name of the claim."""
        return replace(self._plan, claim=self.claim)

    def take(self, derived: Sequence[Derived], stop: int) -> str | None:
        """Publish the results of tasks from the progress up to `stop`; returns why it was done serially, or None."""
        self._claim.check()
        start = max(self.progress.end, derived[0].split.file.base)
        end, spans, problem = self._join(derived, start)
        applied: list[Applied] = []
        if problem is None and end > start:
            applied = self._add_ordered(derived)
            problem = next((each.problem for each in applied if each.problem is not None), None)
        if problem is not None:
            self._redo(stop, problem)
        elif end > start:
            plain = (QueueMark(*key, span.next, span.next * ENTRY_SIZE) for key, span in spans.items())
            moved = [*plain, *chain.from_iterable(each.moved for each in applied)]
            self._publish(start, end, moved, applied)
        self._forget(derived)
        return problem

    def _join(self, derived: Sequence[Derived], start: int) -> tuple[int, dict[QueueKey, Span], str | None]:
        """Where the results end, and the spans of their queues; or why they cannot be published."""
        end, problem = join_reaches([(each.split, each.result.reach) for each in derived], start)
        spans, out_of_step = join_spans(each.result.spans for each in derived)
        for each in derived:
            if each.result.gaps:
                problem = f"the log is damaged at {each.result.gaps[0].start}"
        for key in () if problem else sorted(spans):
            mark = self.progress.queues.get(key)
            expected = 0 if mark is None else mark.next_offset
            if key in out_of_step or spans[key].first != expected:
                problem = f"the queue {key[0]}/{key[1]} does not go on at {expected}"
        return end, spans, problem

    def _add_ordered(self, derived: Sequence[Derived]) -> list[Applied]:
        """Have tasks add what the splits have spilled."""
        before, plan = self.progress, self.plan
        pieces = [(each.split.start, dict(each.result.dense)) for each in derived]
        queues = queue_tasks(plan, before, pieces, self._cores)
        with_keys = tuple(each.split.start for each in derived if each.result.key_count)
        index = [IndexTask(plan, before.index_name, before.index_count, with_keys)] if with_keys else []
        doing = [count_of(sum(each.result.key_count for each in derived), "index key")] if index else []
        doing += [count_of(sum(len(task.queues) for task in queues), "dense queue")] if queues else []
        size = derived[-1].split.stop - max(before.end, derived[0].split.start)
        records = count_of(sum(each.result.record_count for each in derived), "record")
        return self._do([*index, *queues], f"add {' and '.join(doing)} of {records} in {count_of(size, 'byte')}")

    def _redo(self, stop: int, problem: str) -> None:
        """Undo the results of the tasks, and have one task dispatch the range record by record."""
        readable = self.readable()
        if readable is None or self.progress.end >= stop:
            stop = self.progress.end
        self._claim.renew()  # no task that read a split writes any more
        end = stop if readable is None else readable.end
        doing = f"dispatch record by record ({problem})"
        (applied,) = self._do([RedoTask(self.plan, self.progress, stop, end)], doing)
        if applied.end > self.progress.end:
            self._publish(self.progress.end, applied.end, applied.moved, [applied])

    def _do(self, tasks: Sequence[OrderedTask], doing: str) -> list[Applied]:
        """Have tasks do ordered work, until each result is that of the last attempt."""
        done: dict[str, Applied] = {}
        for _ in range(_TRIES):
            left = [replace(task, plan=self.plan) for task in tasks if task.unit not in done]
            if not left:
                break
            applied = self._run(apply_ordered, left, doing)
            self._claim.renew()
            made = zip(left, applied, strict=True)
            done |= {task.unit: each for task, each in made if is_last_attempt(task, each.attempt, self._medium)}
        if len(done) < len(tasks):
            raise JobFailed(
                f"other attempts at the same task have begun {_TRIES} times", advice="does Spark lose its executors?"
            )
        return [done[task.unit] for task in tasks]

    def _publish(self, start: int, end: int, moved: Sequence[QueueMark], applied: Sequence[Applied]) -> None:
        before = self.progress
        index = next((each.index for each in applied if each.index is not None), None)
        changed = [mark for mark in moved if mark.end_byte and before.queues.get(mark.key) != mark]
        self.publish(start, end, changed, index or (before.index_name, before.index_count))

    def _forget(self, derived: Sequence[Derived]) -> None:
        """Delete what the splits have spilled."""
        for each in derived:
            self._medium.remove(self._plan.build.keys_path(each.split.start))
            self._medium.remove(self._plan.build.dense_path(each.split.start))
