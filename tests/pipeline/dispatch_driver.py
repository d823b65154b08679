"""The driver that `test_cluster_dispatch.py` kills: dispatch of a store, and streams out of it, in one session.

dispatch_driver.py MASTER WORK
WORK/source, which the test writes ◀──dispatch
            └─streams──▶ WORK/copy and WORK/rows, as in `kill_driver.py`
WORK/stop                ends dispatch; the streams then read the rest, and the driver prints dispatch's report
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.pipeline.dispatch import DispatchReport, dispatch
from flintlog.pipeline.session import get_session
from tests.store.dispatch.test_external_dispatch import EXTERNAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_BYTES = 12_000


def main(master: str, work: Path) -> dict[str, object]:
    spark = get_session(master)
    try:
        found: list[DispatchReport | Exception] = []
        stop = threading.Event()
        job = threading.Thread(target=run_job, args=(spark, work, stop, found), name="job")
        job.start()
        query = copy(spark, work)
        while not (work / "stop").exists() and not found and query.isActive:
            time.sleep(0.1)
        stop.set()
        job.join()
        if isinstance(found[0], Exception):
            raise found[0]
        query.processAllAvailable()
        query.stop()
        count = spark.read.format("flintlog").load(str(work / "source")).count()
        return {"message_count": count, **asdict(found[0])}
    finally:
        spark.stop()


def run_job(spark: SparkSession, work: Path, stop: threading.Event, found: list[DispatchReport | Exception]) -> None:
    try:
        found.append(dispatch(spark, work / "source", config=EXTERNAL, stop=stop, max_bytes=BATCH_BYTES))
    except Exception as error:  # noqa: BLE001 - raised by the main thread
        found.append(error)


def copy(spark: SparkSession, work: Path) -> StreamingQuery:
    reader = spark.readStream.format("flintlog").option("startingOffsets", "earliest")
    frame = reader.option("maxBytesPerTrigger", BATCH_BYTES).option("splitBytes", "8k").load(str(work / "source"))
    writer = frame.writeStream.format("flintlog").option("config", str(work / "broker.conf"))
    placed = writer.option("path", str(work / "copy")).option("checkpointLocation", str(work / "copy.checkpoint"))
    return placed.trigger(processingTime="200 milliseconds").start()


if __name__ == "__main__":
    report = main(sys.argv[1], Path(sys.argv[2]))
    (Path(sys.argv[2]) / "report.json").write_text(json.dumps(report))
