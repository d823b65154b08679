"""A small wheel for the timer: that of RocketMQ has a million slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintlog.services.timer.timer_service import TimerService
from tests.flips.scenes import TIMER_SLOTS


@pytest.fixture(autouse=True, scope="module")
def small_wheel() -> Iterator[None]:
    before = TimerService.wheel_slots
    TimerService.wheel_slots = TIMER_SLOTS
    yield
    TimerService.wheel_slots = before
