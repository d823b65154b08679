"""Figures: the same work is counted alike by the real Java store and by ours, and the names are those of the jars."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store
from interop.java_runtime import JavaRuntime
from interop.java_store import JavaFigures, JavaStore
from interop.questions import GetQuestion
from interop.store_view import StoreView, view_of
from interop.workload import OPTIONS, QUEUE_TYPES, workload

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

GROUP = "flintlog"
NAMES = Path(__file__).parents[1] / "store" / "rocketmq_figures.json"
# What both count exactly. Times and rates are the machine's.
COUNTED = ("putMessageTimesTotal", "putMessageSizeTotal", "putMessageFailedTimes", "putMessageAverageSize")
ALIKE = (*COUNTED, "commitLogMinOffset", "commitLogMaxOffset")


def gets(view: StoreView) -> Iterator[GetQuestion]:
    """Pages of every queue, wanted and not, at its ends and beyond them; and of queues that are not there."""
    for queue in view.queues.values():
        for offset in (queue.min, queue.max - 1, queue.max, queue.max + 1, queue.min - 1, (queue.min + queue.max) // 2):
            yield GetQuestion(queue.topic, queue.queue_id, max(offset, 0), 7)
        yield GetQuestion(queue.topic, queue.queue_id, queue.min, 32, "TagA || TagB")
        yield GetQuestion(queue.topic, queue.queue_id, queue.min, 32, "no such tag")
    yield GetQuestion("nothing", 0, 0)


def ask(store: Store, question: GetQuestion) -> None:
    place = (question.topic, question.queue_id, question.offset)
    store.get(*place, question.max_num, question.filter, group=GROUP)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_both_count_the_same(tmp_path: Path, flush: str) -> None:
    puts = list(workload(3000 if flush == "async" else 300, seed=11))
    config = StoreConfig.from_rocketmq(OPTIONS).with_changes(topic_queue_types=QUEUE_TYPES, flush=flush)
    with open_store(tmp_path / "ours", config) as store:
        for put in puts:
            (store.put(put) if isinstance(put, Message) else store.put_batch(list(put))).check()
        store.wait_dispatched()
        view = view_of(store)
        questions = list(gets(view))
        before = store.counters.get_found_times, store.counters.get_miss_times, store.counters.get_transferred_count
        for question in questions:
            ask(store, question)
        ours, counters, figures = store.stats(), store.counters, store.broker_stats
        with JavaStore(tmp_path / "java", OPTIONS, topic_queue_types=QUEUE_TYPES) as java:
            assert {receipt.status for receipt in java.put(puts)} == {"PUT_OK"}
            java.answers(questions)
            theirs = java.figures()
        assert {name: str(ours[name]) for name in ALIKE} == {name: theirs.runtime_info[name] for name in ALIKE}
        assert {name: (count.times, count.bytes) for name, count in counters.topics.items()} == by_topic(theirs)
        after = counters.get_found_times, counters.get_miss_times, counters.get_transferred_count
        assert tuple(b - a for a, b in zip(before, after, strict=True)) == (
            theirs.get_found,
            theirs.get_miss,
            theirs.transferred,
        )
        behind = {key: item.value for key, item in figures.items("GROUP_GET_FALL_SIZE").items()}
        assert light_apart(behind) == light_apart(theirs.fall_size)
        # Ours says the ratio of each path only where there are several.
        assert {name for name in theirs.runtime_info if "commitLogDiskRatio_" not in name} <= set(ours)


def by_topic(theirs: JavaFigures) -> dict[str, tuple[int, int]]:
    return {topic: (times, theirs.topic_sizes[topic]) for topic, times in theirs.topic_times.items()}


def light_apart(behind: dict[str, int]) -> dict[str, int]:
    """Without light queues: the store in a test is named, a broker counts them as one."""
    return {key: size for key, size in behind.items() if "%LMQ%" not in key}


def test_the_names_are_those_of_the_jars(java: JavaRuntime) -> None:
    names = json.loads(NAMES.read_text())
    assert constants(java, "org.apache.rocketmq.store.stats.BrokerStatsManager") == set(
        names["org.apache.rocketmq.store.stats.BrokerStatsManager"]
    )
    assert constants(java, "org.apache.rocketmq.common.stats.Stats") <= set(
        names["org.apache.rocketmq.store.stats.BrokerStatsManager"]
    )
    getters = re.findall(r"public long get(Msg\w+)\(\)", javap(java, "org.apache.rocketmq.store.stats.BrokerStats"))
    assert {name[0].lower() + name[1:] for name in getters} == set(names["org.apache.rocketmq.store.stats.BrokerStats"])
    running = "org.apache.rocketmq.common.running.RunningStats"
    assert set(re.findall(rf"static final {running} (\w+);", javap(java, running))) == set(names[running])


@pytest.mark.usefixtures("java")
def test_the_map_of_the_store_has_our_names(tmp_path: Path) -> None:
    names = json.loads(NAMES.read_text())
    with JavaStore(tmp_path / "java") as java:
        shown = set(java.figures().runtime_info)
    running = {"commitLogMaxOffset", "commitLogMinOffset", "commitLogDiskRatio", "consumeQueueDiskRatio"}
    disks = {name for name in shown if name.startswith("commitLogDiskRatio_")}
    assert shown - running - disks == set(names["org.apache.rocketmq.store.StoreStatsService"])


def constants(java: JavaRuntime, name: str) -> set[str]:
    return set(re.findall(r'static final java\.lang\.String \w+ = "([^"]*)"', javap(java, name)))


def javap(java: JavaRuntime, name: str) -> str:
    classpath = ":".join(str(part) for part in java.classpath[1].parent.glob("rocketmq-*.jar"))
    command = [str(java.java.with_name("javap")), "-p", "-constants", "-cp", classpath, name]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
