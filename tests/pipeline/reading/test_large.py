"""A log of several GiB: what Spark derives is what the store itself wrote, and nothing is found wrong with it."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flintlog import Message, StoreConfig, encoded_batch, open_store
from flintlog.format.sys_flag import TransactionType
from flintlog.pipeline.export import export
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_BYTES = 3 * 1024**3
SEGMENT_BYTES = 512 * 1024**2
BATCH_COUNT = 64
CONFIG = StoreConfig(
    flush="async", mapped_file_size_commit_log=SEGMENT_BYTES, max_hash_slot_num=200_000, max_index_num=1_000_000
)


def _message(number: int, topic: str, queue_id: int, body: bytes) -> Message:
    return Message(
        topic,
        body[: 200 + number % 1700],
        tags=("paid", "open", None)[number % 3],
        keys=[f"o-{number}", f"c-{number % 1000}"][: number % 3],
        queue_id=queue_id,
        properties={"UNIQ_KEY": f"7F{number:014d}"} if number % 2 else None,
    )


def fill_large(path: Path, log_bytes: int) -> int:
    """Batches for forty queues, now and then a prepared and a rolled back message; how many messages."""
    chance, number = random.Random(5), 0
    body = chance.randbytes(2048)
    with open_store(path, CONFIG) as store:
        while store.max_physical_offset < log_bytes:
            topic, queue_id = f"topic-{chance.randrange(5)}", chance.randrange(8)
            batch = [_message(number + place, topic, queue_id, body) for place in range(BATCH_COUNT)]
            store.put_encoded(encoded_batch(batch)).check()
            number += BATCH_COUNT
            if chance.random() < 0.05:
                kind = chance.choice([TransactionType.PREPARED, TransactionType.ROLLBACK])
                store.put(Message(topic, body[:99], queue_id=queue_id, sys_flag=int(kind))).check()
                number += 1
    return number


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(root: Path, *folders: str) -> dict[str, str]:
    return {
        str(path.relative_to(root)): digest(path)
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_several_gib_are_derived_to_the_bytes_that_the_store_wrote(spark: SparkSession, tmp_path: Path) -> None:
    store, made, table = tmp_path / "store", tmp_path / "made", tmp_path / "table"
    count = fill_large(store, LOG_BYTES)
    report = rebuild(spark, store, config=CONFIG, into=made)
    assert report.serial_queues == []
    assert digests(made, "consumequeue") == digests(store, "consumequeue")
    indexes = [list(digests(root, "index").values()) for root in (made, store)]
    assert len(indexes[0]) > 1
    assert indexes[0] == indexes[1]
    assert verify(spark, store, config=CONFIG).findings == []
    assert export(spark, store, table).rows == count
    assert spark.read.parquet(str(table)).select("physical_offset").distinct().count() == count
