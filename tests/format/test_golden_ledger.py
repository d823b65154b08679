"""Every file of the DLedger directories that the real DLedger wrote, read and written back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flintlog.format.ledger import (
    ENTRY_END_RESERVE,
    EntryHead,
    LedgerCheckpoint,
    encode_entry_blank,
    encode_entry_head,
    encode_index_record,
    encode_ledger_checkpoint,
    encode_term_vote,
    parse_entry_blank,
    parse_entry_head,
    parse_index_record,
    parse_ledger_checkpoint,
    parse_term_vote,
)
from flintlog.format.record import parse_record

Golden = Callable[[str], Path]
NODES = ["group/dledger-n0", "group/dledger-n1", "group/dledger-n2", "group/diverged"]
ALL = [*NODES, "broker/store/dledger-n0", "mixed/store/dledger-n0"]


def read_entries(directory: Path) -> Iterator[tuple[EntryHead, bytes]]:
    """All entries; on the way every byte of the data files is accounted for."""
    for path in sorted((directory / "data").iterdir()):
        data, place = path.read_bytes(), 0
        while True:
            remaining = parse_entry_blank(data, place)
            if remaining is not None:
                assert data[place:] == encode_entry_blank(len(data) - place).ljust(remaining, b"\x00")
                break
            if not any(data[place:]):
                break
            head = parse_entry_head(data, place)
            assert encode_entry_head(head) == data[place : place + 48]
            assert head.position == int(path.name) + place
            yield head, data[place + 48 : place + head.size]
            place += head.size
            assert place <= len(data) - ENTRY_END_RESERVE


def dumped(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    node, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    return node, entries


@pytest.mark.parametrize("name", NODES)
def test_entries_are_what_java_reads(golden: Golden, name: str) -> None:
    directory = golden("ledger") / name
    truth = "diverged" if directory.name == "diverged" else "entries"
    node, entries = dumped(directory.parent / f"{truth}.jsonl")
    found = list(read_entries(directory))
    assert len({line["term"] for line in entries}) >= 4
    assert [(head.index, head.term, head.position, head.size, body) for head, body in found] == [
        (line["index"], line["term"], line["pos"], line["size"], base64.b64decode(line["body"])) for line in entries
    ]
    assert node["endIndex"] == found[-1][0].index


@pytest.mark.parametrize("name", ALL)
def test_the_index_says_where_each_entry_lies(golden: Golden, name: str) -> None:
    directory = golden("ledger") / name
    heads = [head for head, _ in read_entries(directory)]
    index = b"".join(path.read_bytes()[:65536] for path in sorted((directory / "index").iterdir()))
    for head in heads:
        assert parse_index_record(index, head.index * 32) == head.index_record
    assert b"".join(encode_index_record(head.index_record) for head in heads) == index[: len(heads) * 32]


@pytest.mark.parametrize("name", ALL)
def test_term_and_checkpoint_are_read_and_written_back(golden: Golden, name: str) -> None:
    directory = golden("ledger") / name
    heads = [head for head, _ in read_entries(directory)]
    term = (directory / "currterm").read_bytes()
    assert encode_term_vote(parse_term_vote(term)) == term
    assert parse_term_vote(term).term >= heads[-1].term
    checkpoint = (directory / "checkpoint").read_bytes()
    assert encode_ledger_checkpoint(parse_ledger_checkpoint(checkpoint)) == checkpoint
    own = 10 if directory.name == "diverged" else 0
    assert parse_ledger_checkpoint(checkpoint) == LedgerCheckpoint(heads[-1].index, heads[-1].index - own)


@pytest.mark.parametrize("name", ["broker", "mixed"])
def test_a_brokers_bodies_are_records_that_know_their_place(golden: Golden, name: str) -> None:
    case = golden("ledger") / name
    lines = [json.loads(line) for line in (case / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    entries = list(read_entries(case / "store/dledger-n0"))
    for (head, body), line in zip(entries, lines[len(lines) - len(entries) :], strict=True):
        record = parse_record(body)
        assert record.size == len(body)
        assert record.physical_offset == head.position + 48 == line["physicalOffset"]
