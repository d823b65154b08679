"""Checks the small files that refer to the log and its queues: checkpoint, consumer offsets, delay levels.

They are checked once, after the log was judged. The timer's files have a module of their own, `timer_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.checks.log_judgement import LogFacts, LogJudgement
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, parse_checkpoint
from flintlog.format.config_json import BATCH_TYPE, JsonObject, JsonValue, named_queue_types, parse_config_object
from flintlog.format.queue_entry import QueueKey
from flintlog.format.record import SCHEDULE_TOPIC

RecordStartsAt = Callable[[int], bool]
MaxOffset = Callable[[QueueKey], "int | None"]
"""The queue offset after a queue's last message; None when there is no such queue."""


def check_checkpoint(
    data: bytes | None, path: str, log: LogJudgement, facts: LogFacts, starts_at: RecordStartsAt
) -> tuple[Checkpoint, list[Finding]]:
    """The checkpoint, as far as it can be read, and the findings about it."""
    remedy = "repair writes one; until then the next opening reads more of the log"
    if data is None:
        if not log.record_count:
            return Checkpoint(), []
        return Checkpoint(), [Finding("missing-checkpoint", WARNING, "there is no checkpoint", remedy, path)]
    if len(data) != CHECKPOINT_SIZE:
        evidence = f"the checkpoint has {len(data)} bytes, not {CHECKPOINT_SIZE}"
        return Checkpoint(), [Finding("damaged-checkpoint", WARNING, evidence, remedy, path)]
    values = parse_checkpoint(data)
    findings = [
        Finding("damaged-checkpoint", WARNING, evidence, remedy, path, Checkpoint.place_of(name))
        for name, evidence in _beyond(values, log, facts, starts_at)
    ]
    return values, findings


def _beyond(values: Checkpoint, log: LogJudgement, facts: LogFacts, starts_at: RecordStartsAt) -> list[tuple[str, str]]:
    """The fields that cannot be right, each with the reason."""
    found: list[tuple[str, str]] = []
    if facts.is_running:
        return found
    for name in ("confirm_physical_offset", "logics_physical_offset"):
        value = getattr(values, name)
        what = f"its {name.replace('_', ' ')} is {value}"
        if value < 0:
            found.append((name, what))
        elif value > log.end and not log.is_damaged(log.end):
            found.append((name, f"{what}, and the log ends at {log.end}"))
        elif name.startswith("logics") and _is_no_record(value, log, starts_at):
            found.append((name, f"{what}, where no record begins"))
    latest = log.last_store_timestamp
    for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
        value = getattr(values, name)
        if latest >= 0 and value > latest and facts.is_clean and not log.damages:
            found.append((name, f"its {name.replace('_', ' ')} is {value}, and the last message is of {latest}"))
    return found


def _is_no_record(offset: int, log: LogJudgement, starts_at: RecordStartsAt) -> bool:
    is_inside = offset > 0 and log.min_offset <= offset < log.end
    return is_inside and not starts_at(offset) and not log.is_damaged(offset)


def parse_config(
    data: bytes, path: str, accept: Callable[[JsonObject], None], *, has_backup: bool
) -> tuple[JsonObject | None, list[Finding]]:
    """A config file, or a finding that says why it cannot be read; `accept` raises for one that no opening takes."""
    try:
        found = parse_config_object(data)
        accept(found)
        return found, []
    except (FormatError, DamagedStore) as error:
        remedy = "restore it from its .bak" if has_backup else "restore it from a backup or another broker"
        return None, [Finding("damaged-config", ERROR, error.what, remedy, path, error.offset)]


def check_queue_types(
    table: JsonObject, path: str, batch_topics: Iterable[str], declared: Mapping[str, str]
) -> list[Finding]:
    """Topics that have batch queues while neither `topics.json` nor the configuration (`declared`) says so."""
    types = {**named_queue_types(table), **declared}
    remedy = f"set the topic's attribute queue.type to {BATCH_TYPE}, as the queues were written; `repair` leaves it"
    return [
        Finding("wrong-queue-type", ERROR, f"topic {topic!r} has batch queues, and is not named as such", remedy, path)
        for topic in sorted(set(batch_topics))
        if types.get(topic) != BATCH_TYPE
    ]


def check_consumer_offsets(table: JsonObject, path: str, max_offset: MaxOffset) -> list[Finding]:
    """`consumerOffset.json`: no group is ahead of its queue, nor is a light group of `lmqConsumerOffset.json`."""
    findings: list[Finding] = []
    for name, offset in _mapping(table.get("lmqOffsetTable")).items():
        topic, _, group = str(name).partition("@")
        findings += _check_offset(path, f"group {group}", (topic, 0), _int(offset), max_offset)
    for name, offsets in _mapping(table.get("offsetTable")).items():
        topic, _, group = str(name).partition("@")
        for queue_id, offset in _mapping(offsets).items():
            findings += _check_offset(path, f"group {group}", (topic, _int(queue_id)), _int(offset), max_offset)
    return findings


def check_delay_offsets(table: JsonObject, path: str, max_offset: MaxOffset) -> list[Finding]:
    """`delayOffset.json`: no level is ahead of its queue."""
    findings: list[Finding] = []
    for level, offset in _mapping(table.get("offsetTable")).items():
        key = SCHEDULE_TOPIC, _int(level) - 1
        findings += _check_offset(path, f"delay level {level}", key, _int(offset), max_offset)
    return findings


def _check_offset(path: str, reader: str, key: QueueKey, offset: int, max_offset: MaxOffset) -> list[Finding]:
    end = max_offset(key) or 0
    if offset <= end:
        return []
    evidence = f"{reader} is at {offset} of {key[0]}/{key[1]}, which ends at {end}"
    return [Finding("offset-beyond-queue", WARNING, evidence, "set the offset back to the queue's end", path)]


def _mapping(value: JsonValue) -> Mapping[str | int, JsonValue]:
    return value if isinstance(value, dict) else {}


def _int(value: object) -> int:
    if isinstance(value, int):
        return value
    text = str(value)
    return int(text) if text.lstrip("-").isdecimal() else 0
