"""The files of a store's `config` folder: each is read once, before anything is recovered.

    config/topics.json               topics; they name the kind of queue that recovery builds
    config/subscriptionGroup.json    groups
    config/consumerOffset.json       offsets; lmqConsumerOffset.json in a store with light queues
    config/consumerFilter.json       subscriptions; recovery may evaluate them
    config/delayOffset.json          checked here, and read by the delay service

If a file does not parse or has another shape, its `.bak` is used, and that is a finding. If neither can be used,
opening for writing fails before anything is changed; a read-only opening reports it and goes on without the file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flintlog.checks.finding import Finding
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.format.config_json import BATCH_TYPE, SIMPLE_TYPE
from flintlog.store.filters.bloom import BloomFilter
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.queues.queue_files import find_batch_topics
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.settings.config_shapes import parse_delay_offsets
from flintlog.store.settings.config_table import ConfigTable
from flintlog.store.settings.consumer_offsets import ConsumerOffsets
from flintlog.store.settings.groups import GROUP_EXTRAS, SYSTEM_GROUPS, GroupConfig
from flintlog.store.settings.json_file import JsonFile, broken_finding
from flintlog.store.settings.subscriptions import Subscriptions
from flintlog.store.settings.topics import SYSTEM_TOPICS, TopicConfig


class ConfigFiles:
    """The tables of one store's config folder. Loaded by the thread that opens the store."""

    def __init__(
        self,
        paths: StorePaths,
        config: StoreConfig,
        medium: Medium,
        now_ms: Milliseconds,
        *,
        read_only: bool = False,
        is_trial: bool = False,
        check_open: Callable[[], None] = lambda: None,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_open` may refuse a save by an error. `flush` makes the log durable before offsets are saved.

        A trial finds out whether the files can be loaded, and logs nothing.
        """
        tabled = partial(JsonFile, medium=medium, before_save=check_open, is_trial=is_trial)
        self.findings: list[Finding] = []
        """Files that the last load replaced by their backup, or could not use."""
        self.topics_file = tabled(paths.topics)
        self.groups_file = tabled(paths.groups)
        self.topics = ConfigTable(self.topics_file, TopicConfig, "topicConfigTable", now_ms, predefined=SYSTEM_TOPICS)
        self.groups = ConfigTable(
            self.groups_file,
            GroupConfig,
            "subscriptionGroupTable",
            now_ms,
            predefined=SYSTEM_GROUPS,
            entry_extras=GROUP_EXTRAS,
            file_extras={"forbiddenTable": {}},
        )
        self.offsets = ConsumerOffsets(
            tabled(paths.consumer_offsets),
            now_ms,
            config.flush_consumer_offset_interval,
            flush=flush,
            is_light=paths.is_light,
            other=JsonFile(paths.other_consumer_offsets, medium, is_trial=is_trial),
        )
        self.subscriptions = Subscriptions(
            tabled(paths.consumer_filter),
            BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter),
            now_ms,
            read_only=read_only,
        )
        self._delays = JsonFile(paths.delay_offsets, medium, is_trial=True)  # its service loads it
        self._has_delays = "schedule" in config.services and not read_only
        self._given_types = config.topic_queue_types
        self._found_types: dict[str, str] = {}
        self._root, self._medium = paths.root, medium
        self._read_only = read_only

    def load(self) -> None:
        """Read the files. `DamagedStore` unless the store is only read; then nothing was changed."""
        self.findings = []
        self._found_types = find_batch_topics(self._root, self._medium)
        self._load(self.topics_file, self.topics.load)
        self._load(self.groups_file, self.groups.load)
        self._load(self.offsets.file, self.offsets.load)
        self._load(self.subscriptions.file, self.subscriptions.load)
        if self._has_delays:
            self._delays.load(lambda content: parse_delay_offsets(content, self._delays.path))

    def _load(self, file: JsonFile, load: Callable[[], None]) -> None:
        try:
            load()
        except DamagedStore as broken:
            if not self._read_only:
                raise
            self.findings.append(broken_finding(file.path, broken))
        else:
            self.findings += file.findings

    @property
    def queue_types(self) -> dict[str, str]:
        """The kind of queue of each topic that has one: by the configuration, by `topics.json`, by its queues on disk.

        A topic that `topics.json` lists without a kind has simple queues.
        """
        listed = self.topics.by_name
        named = {name: topic.queue_type for name, topic in listed.items()}
        found = {name: kind for name, kind in named.items() if kind in (SIMPLE_TYPE, BATCH_TYPE)}
        unlisted = {name: kind for name, kind in self._found_types.items() if name not in listed}
        return {**unlisted, **found, **self._given_types}
