"""Bytes and text that are something else: read or refused with a FormatError, never anything else."""

from __future__ import annotations

import string
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.checkpoint import parse_checkpoint
from flintlog.format.client_batch import parse_client_batch
from flintlog.format.ledger import (
    parse_entry_blank,
    parse_entry_head,
    parse_index_record,
    parse_ledger_checkpoint,
    parse_term_vote,
)
from flintlog.format.message_id import (
    format_host,
    parse_host,
    parse_message_id,
    parse_unique_key,
)
from flintlog.format.names import (
    parse_abort,
    parse_index_file_name,
    parse_segment_name,
)
from flintlog.format.queue_entry import (
    parse_batch_queue_entries,
    parse_batch_queue_entry,
    parse_extension_unit,
    parse_extension_units,
    parse_queue_entries,
    parse_queue_entry,
)


@pytest.mark.parametrize(
    "parse",
    [
        parse_queue_entry,
        lambda data: list(parse_queue_entries(data)),
        parse_batch_queue_entry,
        lambda data: list(parse_batch_queue_entries(data)),
        parse_extension_unit,
        lambda data: list(parse_extension_units(data)),
        parse_checkpoint,
        parse_entry_head,
        parse_entry_blank,
        parse_index_record,
        parse_term_vote,
        parse_ledger_checkpoint,
        parse_client_batch,
        format_host,
        parse_abort,
        lambda data: parse_queue_entry(data, len(data) - 3),
        lambda data: parse_batch_queue_entry(data, -1),
        lambda data: parse_extension_unit(data, -len(data)),
    ],
)
@given(data=st.binary(max_size=120))
def test_random_bytes_are_read_or_refused(parse: Callable[[bytes], object], data: bytes) -> None:
    with suppress(FormatError):
        parse(data)


@pytest.mark.parametrize(
    "parse", [parse_host, parse_message_id, parse_unique_key, parse_segment_name, parse_index_file_name]
)
@given(text=st.text(max_size=60) | st.text(string.hexdigits + ":[].", max_size=60))
def test_random_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    with suppress(FormatError):
        parse(text)
