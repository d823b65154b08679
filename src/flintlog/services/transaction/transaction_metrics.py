"""RocketMQ's count of undecided transactions by topic, in `config/transactionMetrics`.

    {"dataVersion":{"counter":7,"stateVersion":0,"timestamp":...},"transactionCount":{"orders":{"count":2,"timeStamp":...}}}

No decision depends on it: each start counts the undecided transactions again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.settings.json_file import JsonFile, check_objects

METRICS_NAME: Final = "transactionMetrics"


class TransactionMetrics:
    """Undecided transactions by topic. As in RocketMQ, a topic without any left stays with 0."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._file = JsonFile(host.store.path / "config" / METRICS_NAME, host.medium, pretty=False)
        self._now_ms = host.now_ms
        self._metrics: dict[str, JsonObject] = {}
        self._counter = 0
        self._version_ms = 0

    def load(self) -> None:
        members = ("dataVersion", "transactionCount")
        content = self._file.load_figures(lambda found: check_objects(found, *members)) or {}
        self._host.report(self._file.findings)
        version, counts = content.get("dataVersion"), content.get("transactionCount")
        self._version_ms = self._now_ms()
        if isinstance(version, dict):
            self._counter = _number(version.get("counter"), 0)
            self._version_ms = _number(version.get("timestamp"), self._version_ms)
        if isinstance(counts, dict):
            self._metrics = {str(topic): dict(metric) for topic, metric in counts.items() if isinstance(metric, dict)}

    def save(self, counts: Mapping[str, int]) -> None:
        """Write the counts, if they changed."""
        now_ms = self._now_ms()
        for topic in sorted(self._metrics.keys() | counts.keys()):
            if self._metrics.get(topic, {}).get("count") != counts.get(topic, 0):
                self._metrics[topic] = {"count": counts.get(topic, 0), "timeStamp": now_ms}
                self._counter, self._version_ms = self._counter + 1, now_ms
        version = {"counter": self._counter, "stateVersion": 0, "timestamp": self._version_ms}
        self._file.save({"dataVersion": version, "transactionCount": self._metrics})


def _number(value: JsonValue, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
