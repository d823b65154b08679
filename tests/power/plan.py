"""What one seed means: the options of a store, and the lives of the processes that write to it.

    seed ─▶ Plan ─┬─ config      which kinds of files there are, how small, when they are synced
                  └─ lives       each a process: what it does, and how it ends (close, kill, power cut)

The driver and the worker make the same plan from the same seed. The kernel's timing stays random; nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Literal

from flintlog import StoreConfig
from flintlog.format.topics import LMQ_PREFIX

ORDERS = "orders"
EVENTS = "events"
BATCHES = "batches"
TEMPORARY = "temporary"
"""Deleted and made again while the others go on. One thread has it to itself, so that the order is known."""

TOPICS = (ORDERS, EVENTS)
LIGHT = tuple(f"{LMQ_PREFIX}device{number}" for number in range(4))
"""Light queues: a message of another topic is in some of them too."""
QUEUES = 3


class End(StrEnum):
    """How a life ends."""

    CLOSE = "close"
    KILL = "kill"
    KILL_OPENING = "kill-opening"
    CUT = "cut"
    CUT_OPENING = "cut-opening"
    CUT_CLOSING = "cut-closing"
    CUT_FLUSHED = "cut-flushed"


CUTS = frozenset({End.CUT, End.CUT_OPENING, End.CUT_CLOSING, End.CUT_FLUSHED})
STOPS = frozenset({End.CLOSE, End.CUT_CLOSING})
"""Ends before which the worker stops the store by itself."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process: `delay_s` passes between the line that its end waits for and the end."""

    number: int
    end: End
    threads: int
    steps: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that follows from a seed."""

    seed: int
    config: StoreConfig
    deletes: bool
    lives: tuple[Life, ...]

    @property
    def retains(self) -> bool:
        return self.config.retention == "on"

    @property
    def is_sync(self) -> bool:
        return self.config.flush == "sync"

    @property
    def has_pool(self) -> bool:
        """Whether acknowledged messages may be in the process's memory only."""
        return self.config.transient_store_pool_enable

    @property
    def has_services(self) -> bool:
        return bool(self.config.services)

    @property
    def has_timer(self) -> bool:
        return "timer" in self.config.services

    @property
    def has_light_queues(self) -> bool:
        return self.config.enable_multi_dispatch


def make_plan(seed: int) -> Plan:
    """The plan of a seed."""
    chance = Random(f"plan {seed}")
    retains, deletes = chance.random() < 0.3, chance.random() < 0.4
    config = _with_more(_config(chance, retains=retains), Random(f"more {seed}"))
    ends = [chance.choice((*End, End.CUT, End.KILL)) for _ in range(chance.randint(0, 2))]
    ends.append(chance.choice((End.CUT, End.CUT, End.CUT_CLOSING, End.CUT_FLUSHED)))
    if chance.random() < 0.3:  # and once more, while what the cut left is being recovered
        ends.append(End.CUT_OPENING)
    lives = tuple(_life(number, end, chance) for number, end in enumerate(ends))
    return Plan(seed, config, deletes, lives)


def _life(number: int, end: End, chance: Random) -> Life:
    if end in (End.KILL_OPENING, End.CUT_OPENING):
        delay_s = chance.uniform(0.0, 0.06)
    elif end in STOPS:
        delay_s = chance.uniform(0.0, 0.03)
    else:
        delay_s = chance.choice((chance.uniform(0.0, 0.05), chance.uniform(0.0, 0.7)))
    return Life(number, end, chance.randint(1, 4), chance.randint(1, 60), delay_s)


def _config(chance: Random, *, retains: bool) -> StoreConfig:
    flush: Literal["sync", "async"] = "sync" if chance.random() < 0.67 else "async"
    slots, entries = chance.choice(((20, 40), (100, 400), (1000, 4000)))
    config = StoreConfig(
        flush=flush,
        mapped_file_size_commit_log=chance.choice((16, 64, 256)) * 1024,
        mapped_file_size_consume_queue=20 * chance.choice((10, 50, 200)),
        max_hash_slot_num=slots,
        max_index_num=entries,
        flush_interval_commit_log=chance.choice((20, 500)),
        flush_interval_consume_queue=chance.choice((10, 100, 1000)),
        flush_consume_queue_thorough_interval=chance.choice((30, 200, 2000)),
        flush_consume_queue_least_pages=chance.choice((0, 2)),
        enable_consume_queue_ext=chance.random() < 0.25,
        mapped_file_size_consume_queue_ext=4096,
        topic_queue_types={BATCHES: "BatchCQ"} if chance.random() < 0.3 else {},
        mapped_file_size_batch_consume_queue=46 * chance.choice((5, 50)),
        enabled_append_prop_crc=chance.random() < 0.3,
        enable_build_consume_queue_concurrently=chance.random() < 0.15,
        message_index_enable=chance.random() < 0.9,
        warm_ahead_bytes=chance.choice((0, 64 * 1024, 16 * 1024 * 1024)),
    )
    if flush == "async" and chance.random() < 0.35:
        config = config.with_changes(transient_store_pool_enable=True, transient_store_pool_size=3)
    if chance.random() < 0.7:
        config = config.with_changes(
            services={"schedule", "transaction"},
            message_delay_level="1s 1s",
            flush_delay_offset_interval=chance.choice((50, 500)),
            transaction_op_batch_interval=chance.choice((20, 500)),
        )
    if retains:
        config = config.with_changes(
            retention="on",
            file_reserved_time=0,
            delete_when="04",
            clean_resource_interval=chance.choice((20, 100)),
            delete_commit_log_files_interval=0,
            delete_consume_queue_files_interval=0,
        )
    return config


def _with_more(config: StoreConfig, chance: Random) -> StoreConfig:
    """Kinds that were added later, drawn apart: a seed keeps everything else that it had."""
    has_timer, has_light_queues = chance.random() < 0.5, chance.random() < 0.4
    if has_timer and config.services:
        config = config.with_changes(
            services={*config.services, "timer"},
            mapped_file_size_timer_log=52 * chance.choice((10, 200)) + 20,
            timer_flush_interval_ms=chance.choice((20, 1000)),
        )
    if has_light_queues:
        config = config.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    return config


def without_services(config: StoreConfig) -> StoreConfig:
    """The same files, and nothing that puts messages or deletes files by itself."""
    return config.with_changes(services=frozenset(), retention="off")


def with_lives(plan: Plan, *ends: End) -> Plan:
    """The same store with other lives: for a test of one situation."""
    chance = Random(f"lives {plan.seed}")
    return replace(plan, lives=tuple(_life(number, end, chance) for number, end in enumerate(ends)))
