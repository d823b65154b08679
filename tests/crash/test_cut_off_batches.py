"""A writer that is killed in the middle of a batch leaves its first messages, each of them whole, and no damage.

That it writes them in this order is tested with the kernels (`tests/kernel/test_cut_off.py`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from flintlog import Message, Receipt, Store, StoreConfig, open_store
from flintlog.derive.log_end import records_end
from tests.crash import writer

CONFIG = writer.config("async")
FIRST_FILE = f"{0:020d}"
BEFORE = Message("t", b"before", keys=["k"])
WITH_TEXTS = [Message("t", bytes([n]) * 9, tags="tag", keys=[f"k{n}"], properties={"a": "b"}) for n in range(3)]
WITHOUT_TEXTS = [Message("topic", bytes([n]) * 9) for n in range(3)]


def crash(path: Path, log: bytes) -> None:
    """Leave a store that was killed, with nothing but this log."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "commitlog").mkdir(parents=True)
    (path / "commitlog" / FIRST_FILE).write_bytes(log)
    (path / "abort").write_bytes(b"")


def served(store: Store) -> list[bytes]:
    """All bodies, by their queues."""
    pages = [store.get(info.topic, info.queue_id, 0, 64) for info in store.queues()]
    return [message.body for page in pages for message in page.messages if message.body != BEFORE.body]


@pytest.mark.parametrize("messages", [WITH_TEXTS, WITHOUT_TEXTS], ids=["texts", "no-texts"])
@pytest.mark.parametrize("with_crc", [False, True], ids=["no-crc", "crc"])
def test_at_whatever_byte_it_is_cut_off(messages: list[Message], with_crc: bool, tmp_path: Path) -> None:
    config = replace(CONFIG, enabled_append_prop_crc=with_crc)
    with open_store(tmp_path / "whole", config) as store:
        store.put(BEFORE).check()
        receipts = store.put_batch(messages)
    begin = receipts[0].physical_offset
    ends = [receipt.physical_offset + receipt.size for receipt in receipts]
    log = (tmp_path / "whole" / "commitlog" / FIRST_FILE).read_bytes()
    for cut in (begin, begin + 8, begin + 100, *range(ends[-1] - 50, ends[-1] + 1)):
        left = log[:cut].ljust(len(log), b"\0")
        whole = [end for end in ends if not any(log[cut:end])]  # what a record ends in may be zeros of its own
        assert records_end(memoryview(left), 0, 0) == max([begin, *whole]), f"beside a writer, cut at {cut}"
        crash(tmp_path / "cut", left)
        with open_store(tmp_path / "cut", config) as store:
            assert not [found for found in store.recovery if found.severity == "error"], f"cut at {cut}"
            assert served(store) == [message.body for message in messages[: len(whole)]], f"cut at {cut}"
            assert store.query("t", "k") and store.put(messages[0]).physical_offset == max([begin, *whole])


def log_with(path: Path, messages: list[Message], config: StoreConfig = CONFIG) -> tuple[bytearray, list[Receipt]]:
    """The log of a store with a message and a batch behind it, and the batch's receipts."""
    with open_store(path, config) as store:
        store.put(BEFORE).check()
        receipts = store.put_batch(messages)
    return bytearray((path / "commitlog" / FIRST_FILE).read_bytes()), list(receipts)


def test_what_lacks_its_end_is_no_reason_to_give_up_what_follows(tmp_path: Path) -> None:
    """A disk may have lost a page and kept those behind: the record before it is as whole as RocketMQ can tell."""
    log, (first, gone, last) = log_with(tmp_path / "whole", WITH_TEXTS)
    log[gone.physical_offset - 2 : gone.physical_offset + gone.size] = bytes(2 + gone.size)
    crash(tmp_path / "cut", bytes(log))
    with open_store(tmp_path / "cut", CONFIG) as store:
        (found,) = [found for found in store.recovery if found.severity == "error"]
        assert (found.id, found.physical_offset, found.size) == ("damaged-range", gone.physical_offset, gone.size)
        for receipt in (first, last):
            message = store.message_at(receipt.physical_offset)
            assert message is not None and message.queue_offset == receipt.queue_offset


def test_all_that_lacks_its_end_is_cut_at_once(tmp_path: Path) -> None:
    """Otherwise the next opening would cut what this one has served."""
    log, receipts = log_with(tmp_path / "whole", WITH_TEXTS)
    for receipt in receipts:
        end = receipt.physical_offset + receipt.size
        log[end - 2 : end] = bytes(2)
    log[receipts[-1].physical_offset] = 1  # and of the last one not even the beginning is right
    crash(tmp_path / "cut", bytes(log))
    with open_store(tmp_path / "cut", CONFIG) as store:
        (found,) = [found for found in store.recovery if found.id == "torn-tail"]
        assert found.physical_offset == receipts[0].physical_offset
        assert store.recovery.log_end == receipts[0].physical_offset
    crash(tmp_path / "again", (tmp_path / "cut" / "commitlog" / FIRST_FILE).read_bytes())
    with open_store(tmp_path / "again", CONFIG) as store:
        assert store.recovery.log_end == receipts[0].physical_offset
        assert not [found for found in store.recovery if found.id == "torn-tail"]


@pytest.mark.parametrize("spoilt", ["head", "body"])
def test_what_lacks_its_end_is_no_sign_that_the_log_goes_on(spoilt: str, tmp_path: Path) -> None:
    """The record before it is the torn end, then, and not damage: the next opening would find nothing behind it."""
    log, (first, last) = log_with(tmp_path / "whole", WITH_TEXTS[:2])
    log[first.physical_offset + (4 if spoilt == "head" else 90)] ^= 1
    end = last.physical_offset + last.size
    log[end - 2 : end] = bytes(2)
    crash(tmp_path / "cut", bytes(log))
    with open_store(tmp_path / "cut", CONFIG) as store:
        assert store.recovery.log_end == first.physical_offset
        assert not [found for found in store.recovery if found.severity == "error"]


def test_what_lies_before_a_record_without_its_end_is_looked_at_as_ever(tmp_path: Path) -> None:
    config = replace(CONFIG, enabled_append_prop_crc=True)
    log, (first, _, last) = log_with(tmp_path / "whole", WITH_TEXTS, config)
    log[log.index(b"tag", first.physical_offset)] ^= 1
    end = last.physical_offset + last.size
    log[end - 2 : end] = bytes(2)
    crash(tmp_path / "cut", bytes(log))
    with open_store(tmp_path / "cut", config) as store:
        found = {
            finding.id: finding.physical_offset for finding in store.recovery if finding.physical_offset is not None
        }
        assert found == {"damaged-record": first.physical_offset, "torn-tail": last.physical_offset}
