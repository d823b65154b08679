"""Fixtures shared by the tests of services."""

from __future__ import annotations

import pytest

from flintlog.services.timer.timer_service import TimerService
from flintlog.testing import FakeClock
from tests.services.timer_store import SLOTS


@pytest.fixture
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of some slots instead of two weeks: RocketMQ's has 38 megabytes."""
    monkeypatch.setattr(TimerService, "wheel_slots", SLOTS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000_000)
