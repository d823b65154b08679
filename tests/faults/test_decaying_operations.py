"""Any order of puts, stops, crashes, failed syncs and flipped bits: each bit costs at most what it lies in."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.faults.decaying_world import DecayingWorld
from tests.faults.test_operations import COUNTS, NAMES, QUICK, SEEDS, THOROUGH, Operation, run
from tests.faults.world import small_config

OPERATIONS = st.lists(
    st.tuples(st.sampled_from((*NAMES, "decay", "decay", "decay", "decay")), SEEDS, COUNTS), min_size=3, max_size=14
)


@pytest.mark.parametrize("flush", ["sync", "async"])
@settings(QUICK, max_examples=20)
@given(OPERATIONS, st.booleans())
@example([("put", 2292, 12), ("crash", 722046, 1), ("delete_topic", 1, 1)], False)
def test_a_bit_costs_at_most_what_it_lies_in(flush: str, operations: list[Operation], whole_crc: bool) -> None:
    run(DecayingWorld(small_config(flush, enabled_append_prop_crc=whole_crc)), operations)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("flush", ["sync", "async"])
@THOROUGH
@given(OPERATIONS, st.booleans(), st.booleans(), st.booleans())
def test_a_bit_costs_at_most_what_it_lies_in_for_long(
    flush: str, operations: list[Operation], whole_crc: bool, torn_creates: bool, concurrent: bool
) -> None:
    config = small_config(flush, enabled_append_prop_crc=whole_crc, enable_build_consume_queue_concurrently=concurrent)
    run(DecayingWorld(config, torn_creates=torn_creates), operations)
