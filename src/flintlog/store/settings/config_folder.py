"""A store's `config` folder: topics, groups, and how far groups have consumed.

    config/topics.json               store.topics
    config/subscriptionGroup.json    store.groups
    config/consumerOffset.json       store.consumer_offsets; lmqConsumerOffset.json in a store with light queues
    config/consumerFilter.json       store.subscriptions

Loading comes after recovery, because offsets are compared with what the queues hold. In the place of a file that does
not parse its `.bak` is used, and that is a finding; when neither parses, opening for writing fails and nothing is
changed, while a read-only opening says so and goes on without.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from flintlog.checks.finding import Finding
from flintlog.errors import DamagedStore, NotLeading, SyncFailed
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.store.runtime.forking import close_in_children
from flintlog.store.runtime.jobs import Background, Job
from flintlog.store.settings.config_table import ConfigTable
from flintlog.store.settings.consumer_offsets import ConsumerOffsets
from flintlog.store.settings.groups import GROUP_EXTRAS, SYSTEM_GROUPS, GroupConfig, Groups
from flintlog.store.settings.json_file import JsonFile, broken_finding
from flintlog.store.settings.shared_state import OFFSETS, Change, Part, State
from flintlog.store.settings.topics import SYSTEM_TOPICS, TopicConfig, Topics

if TYPE_CHECKING:
    from flintlog.store.engine import Engine

log = logging.getLogger(__name__)


class ConfigFolder:
    """The four files and what stands in them."""

    def __init__(self, engine: Engine, background: Background, *, on_queue_type: Callable[[], None]) -> None:
        """`on_queue_type` is called when a topic got another kind of queue."""
        paths, medium, config, now_ms = engine.parts.paths, engine.parts.medium, engine.config, engine.now_ms
        self._engine = engine
        self._background = background
        self._saving: Job | None = None
        self._starting = threading.Lock()
        topics_file = JsonFile(paths.topics, medium, before_save=engine.check_open)
        groups_file = JsonFile(paths.groups, medium, before_save=engine.check_open)
        offsets_file = JsonFile(paths.consumer_offsets, medium, before_save=engine.check_open)
        self._topic_table = ConfigTable(topics_file, TopicConfig, "topicConfigTable", now_ms, predefined=SYSTEM_TOPICS)
        self._group_table = ConfigTable(
            groups_file,
            GroupConfig,
            "subscriptionGroupTable",
            now_ms,
            predefined=SYSTEM_GROUPS,
            entry_extras=GROUP_EXTRAS,
            file_extras={"forbiddenTable": {}},
        )
        self.offsets = ConsumerOffsets(
            offsets_file,
            now_ms,
            config.flush_consumer_offset_interval,
            flush=engine.flush,
            on_change=self._save_in_time,
            is_light=paths.is_light,
            other=JsonFile(paths.other_consumer_offsets, medium),
        )
        if not engine.read_only:
            close_in_children(self.offsets)
        self.topics = Topics(
            self._topic_table,
            read_only=engine.read_only,
            queues=engine.parts.queues,
            on_queue_type=on_queue_type,
            remove=self._remove_topic,
            wait_dispatched=engine.wait_dispatched,
            is_light=paths.is_light,
            is_member=engine.parts.ledger is not None,
        )
        self.groups = Groups(
            self._group_table,
            read_only=engine.read_only,
            remove_offsets=self.offsets.remove_group,
            forget=engine.figures.broker.forget_group,
            is_light=paths.is_light,
        )
        self._files = (
            (topics_file, self._topic_table.load),
            (groups_file, self._group_table.load),
            (offsets_file, self.offsets.load),
            (engine.subscriptions.file, engine.subscriptions.load),
        )
        self._shared_files = {"topics": topics_file, "subscriptionGroup": groups_file}
        self._delay_path = paths.delay_offsets
        self._is_loaded = False

    def load(self) -> list[Finding]:
        """Read the files; what was not as it should be."""
        findings: list[Finding] = []
        for file, load in self._files:
            try:
                load()
            except DamagedStore as broken:
                if not self._engine.read_only:
                    raise
                findings.append(broken_finding(file.path, broken))
            else:
                findings += file.findings
        self._is_loaded = True
        findings += self._taken_over()
        if not self._engine.read_only and not self._engine.is_replica and self._engine.parts.ledger is None:
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
        """Offsets that came from elsewhere, a slave's or a ledger's, may be ahead of the log here; others may not."""

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
        self._engine.flushing.make_readable()  # what was put before is deleted too, and must have its queue by then
        self._engine.dispatcher.remove_topic(topic)
        self._engine.figures.broker.forget_topic(topic)

    def _save_in_time(self) -> None:
        """Offsets have changed. A store whose groups do not move has no thread for them."""
        if self._engine.read_only:
            return
        with self._starting:
            if self._saving is None:
                self._saving = self._background.add("consumer-offsets", self.offsets.run_due)
        self._saving.nudge()

    # ------------------------------------------------------------------ with a group

    def follow(self) -> None:
        """Topics, groups and offsets are the group's from now on, and its leader's to change."""
        for file in self._shared_files.values():
            file.share = _refuse
        self.offsets.follow()

    def lead(self, share: Callable[[State], None]) -> None:
        """They are changed here from now on; `share` brings a change to the group."""
        self.offsets.lead(lambda told: share({OFFSETS: told}))
        for name, file in self._shared_files.items():
            file.share = partial(_share_file, share, name)

    def adopt(self, change: Change) -> None:
        """Take what the group has committed."""
        if change.is_whole or OFFSETS in change.parts:
            self.offsets.adopt(change.parts.get(OFFSETS, {}), is_whole=change.is_whole)
        for name, table in (("topics", self._topic_table), ("subscriptionGroup", self._group_table)):
            content = change.parts.get(name)
            if content is not None and self._shared_files[name].adopt(cast(JsonObject, content)):
                table.load()
        delays = change.parts.get("delayOffset")
        if delays is not None:
            JsonFile(self._delay_path, self._engine.medium).adopt(with_levels(delays))

    def local_state(self) -> State:
        """What this member has kept by itself: what a group begins with whose log says nothing of it."""
        files = {**self._shared_files, "delayOffset": JsonFile(self._delay_path, self._engine.medium)}
        found: State = {name: cast(Part, content) for name, file in files.items() if (content := file.load())}
        offsets = self.offsets.as_part()
        return {**found, OFFSETS: offsets} if offsets else found

    def save(self) -> None:
        """The store stops: write what is not written yet, unless what is there could not be read."""
        self.offsets.close()
        if not self._is_loaded or self._engine.read_only:
            return
        try:
            self.offsets.save()
        except SyncFailed as failure:
            # What was saved before stands; the groups are given again what they consumed since.
            log.error("the groups' offsets were not saved: %s", failure)


def _refuse(value: JsonValue) -> None:
    raise NotLeading("this member does not lead its group", advice="ask the leader")


def _share_file(share: Callable[[State], None], name: str, value: JsonValue) -> None:
    share({name: cast(Part, value)})


def with_levels(content: Part) -> JsonObject:
    """A content of `delayOffset.json` that came as JSON: the levels are numbers again."""
    table = content.get("offsetTable")
    levels = {int(level): offset for level, offset in table.items()} if isinstance(table, dict) else {}
    return cast(JsonObject, {**content, "offsetTable": levels})
