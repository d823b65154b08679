"""How many timed messages wait, by real topic: `config/timermetrics`, counted as RocketMQ does.

The counts are figures only and no decision depends on them. They are written from time to time, and may be wrong after
a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.format.java import concurrent_map_order
from flintlog.format.names import CONFIG
from flintlog.format.timer import TIMER_METRICS
from flintlog.store.settings.json_file import JsonFile, check_objects

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost

_MAP_CAPACITY = 1024


class TimerMetrics:
    """Counts by topic. Only the timer's job changes them."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._file = JsonFile(host.store.path / CONFIG / TIMER_METRICS, host.medium, pretty=False)
        self._counts: dict[str, int] = {}
        self._changes = 0
        self._is_changed = False

    def load(self, *, is_void: bool) -> None:
        """Load the saved counts; with `is_void` only the version, because all messages will be counted again."""
        found = self._file.load_figures(lambda content: check_objects(content, "dataVersion", "timingCount"))
        self._host.report(self._file.findings)
        version = _member(found, "dataVersion")
        self._changes = _number(version.get("counter"))
        if is_void:
            return
        for topic, metric in _member(found, "timingCount").items():
            if isinstance(metric, dict):
                self._counts[str(topic)] = _number(metric.get("count"))

    def add(self, topic: str, step: int) -> None:
        self._counts[topic] = self._counts.get(topic, 0) + step
        self._changes += 1
        self._is_changed = True

    @property
    def counts(self) -> dict[str, int]:
        """How many messages wait, by topic."""
        return {topic: count for topic, count in self._counts.items() if count}

    def save(self) -> None:
        """Write the counts, if they changed."""
        if not self._is_changed:
            return
        self._is_changed = False
        now_ms = self._host.now_ms()
        ordered = concurrent_map_order(self._counts, _MAP_CAPACITY)
        self._file.save(
            {
                "dataVersion": {"counter": self._changes, "stateVersion": 0, "timestamp": now_ms},
                "timingCount": {topic: {"count": self._counts[topic], "timeStamp": now_ms} for topic in ordered},
            }
        )


def _member(found: JsonObject | None, name: str) -> JsonObject:
    value: JsonValue = None if found is None else found.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
