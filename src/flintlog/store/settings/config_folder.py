"""A running store's `config` folder: `store.topics`, `store.groups` and `store.consumer_offsets`.

The files were loaded before recovery (`config_files.py`). What depends on the queues is done after it: offsets beyond
the end of their queue are brought back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from flintlog.checks.finding import Finding
from flintlog.errors import NotLeading, SyncFailed
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.store.runtime.forking import close_in_children
from flintlog.store.runtime.jobs import Background, Job
from flintlog.store.settings.groups import Groups
from flintlog.store.settings.json_file import JsonFile
from flintlog.store.settings.shared_state import OFFSETS, Change, Part, State
from flintlog.store.settings.topics import Topics

if TYPE_CHECKING:
    from flintlog.store.engine import Engine

log = logging.getLogger(__name__)


class ConfigFolder:
    """The settings of one store while it runs, alone or as one of a ledger's group."""

    def __init__(self, engine: Engine, background: Background, *, on_queue_type: Callable[[], None]) -> None:
        """`on_queue_type` is called when a topic got another kind of queue."""
        paths = engine.parts.paths
        self._engine = engine
        self._background = background
        self._saving: Job | None = None
        self._starting = threading.Lock()
        self._files = files = engine.settings
        self._on_queue_type = on_queue_type
        self.offsets = files.offsets
        self.offsets.on_change = self._save_in_time
        if not engine.read_only:
            close_in_children(self.offsets)
        self.topics = Topics(
            files.topics,
            read_only=engine.read_only,
            queues=engine.parts.queues,
            on_queue_type=on_queue_type,
            remove=self._remove_topic,
            wait_dispatched=engine.wait_dispatched,
            is_light=paths.is_light,
            log=engine.log,
        )
        self.groups = Groups(
            files.groups,
            read_only=engine.read_only,
            remove_offsets=self.offsets.remove_group,
            forget=engine.figures.broker.forget_group,
            is_light=paths.is_light,
        )
        self._shared_files = {"topics": files.topics_file, "subscriptionGroup": files.groups_file}
        self._delay_path = paths.delay_offsets

    def load(self) -> None:
        """Read the files again: another process or the group has changed them."""
        self._files.load()
        self._engine.parts.queues.set_types(self._files.queue_types)
        self._on_queue_type()
        self.settle()

    def settle(self) -> list[Finding]:
        """Bring what was loaded in line with the queues; everything that was found."""
        findings = [*self._files.findings, *self._taken_over()]
        if self._engine.log.is_serving and not self._engine.is_replica:
            findings += self._bring_back_offsets()
        return findings

    def _taken_over(self) -> list[Finding]:
        source = self.offsets.taken_from
        if source is None:
            return []
        self._save_in_time()
        paths = self._engine.parts.paths
        return [
            Finding(
                "offsets-taken-over",
                "warning",
                f"there is no {paths.consumer_offsets.name}, and {source.path.name} has offsets",
                f"groups go on where {source.path.name} says; from now on {paths.consumer_offsets.name} is written",
                file=str(source.path),
            ),
            *source.findings,
        ]

    def _bring_back_offsets(self) -> list[Finding]:
        """In a log that this store writes itself an offset beyond a queue's end is wrong; other logs may still grow."""

        def end_of(topic: str, queue_id: int) -> int:
            queue = self._engine.parts.queues.get(topic, queue_id)
            return 0 if queue is None else queue.max_offset

        return [
            Finding(
                "offset-beyond-queue",
                "warning",
                f"group {group} had consumed {topic}/{queue_id} to {old}, but the queue ends at {new}",
                f"the group goes on at {new}",
            )
            for group, topic, queue_id, old, new in self.offsets.clamp(end_of)
        ]

    def _remove_topic(self, topic: str) -> None:
        self.offsets.remove_topic(topic)
        self.offsets.save()
        self._engine.flushing.make_readable()  # earlier messages are deleted too: they must have their queue by then
        self._engine.dispatcher.remove_topic(topic)
        self._engine.figures.broker.forget_topic(topic)

    def _save_in_time(self) -> None:
        """Offsets have changed: start the thread that saves them, if it does not run."""
        if self._engine.read_only:
            return
        with self._starting:
            if self._saving is None:
                self._saving = self._background.add("consumer-offsets", self.offsets.run_due)
        self._saving.nudge()

    # ------------------------------------------------------------------ with a group

    def follow(self) -> None:
        """Refuse changes: only the group's leader changes topics, groups and offsets."""
        for file in self._shared_files.values():
            file.share = _refuse
        self.offsets.follow()

    def lead(self, share: Callable[[State], None]) -> None:
        """Take changes; `share` brings them to the group."""
        self.offsets.lead(lambda changed: share({OFFSETS: changed}))
        for name, file in self._shared_files.items():
            file.share = partial(_share_file, share, name)

    def adopt(self, change: Change) -> None:
        """Adopt what the group has committed."""
        if change.is_whole or OFFSETS in change.parts:
            self.offsets.adopt(change.parts.get(OFFSETS, {}), is_whole=change.is_whole)
        for name, table in (("topics", self._files.topics), ("subscriptionGroup", self._files.groups)):
            content = change.parts.get(name)
            if content is not None and self._shared_files[name].adopt(cast(JsonObject, content)):
                table.load()
        delays = change.parts.get("delayOffset")
        if delays is not None:
            JsonFile(self._delay_path, self._engine.medium).adopt(with_levels(delays))

    def local_state(self) -> State:
        """This member's own state: a group begins with it if its log has no state."""
        files = {**self._shared_files, "delayOffset": JsonFile(self._delay_path, self._engine.medium)}
        found: State = {name: cast(Part, content) for name, file in files.items() if (content := file.load())}
        offsets = self.offsets.as_part()
        return {**found, OFFSETS: offsets} if offsets else found

    def save(self) -> None:
        """The store stops: write what is not written yet."""
        self.offsets.close()
        if self._engine.read_only:
            return
        try:
            self.offsets.save()
        except SyncFailed as failure:
            # The last save stands. Groups get the messages that they consumed since again.
            log.error("the groups' offsets were not saved: %s", failure)


def _refuse(value: JsonValue) -> None:
    raise NotLeading("this member does not lead its group", advice="ask the leader")


def _share_file(share: Callable[[State], None], name: str, value: JsonValue) -> None:
    share({name: cast(Part, value)})


def with_levels(content: Part) -> JsonObject:
    """A content of `delayOffset.json` from JSON, whose keys are texts: the levels are numbers again."""
    table = content.get("offsetTable")
    levels = {int(level): offset for level, offset in table.items()} if isinstance(table, dict) else {}
    return cast(JsonObject, {**content, "offsetTable": levels})
