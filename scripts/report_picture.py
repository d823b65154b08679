"""Make the picture of a report that the README shows: two days of a shop's messages, the page about them, a screenshot.

    python scripts/report_picture.py            # docs/images/report.png; needs Spark, and Chromium for the picture

The store is made with a clock of its own, so that two days take seconds; what is random comes from a fixed seed.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from flintlog import Message, StoreConfig, open_store

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report.png"
FIRST_MS = 1_793_577_600_000
MINUTES = 2 * 24 * 60
STEP_MS = 60_000
TOPICS = {"orders": 8, "payments": 4, "shipments": 4, "audit": 1}
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=16 << 20,
    mapped_file_size_consume_queue=20 * 20_000,
    max_hash_slot_num=100_000,
    max_index_num=400_000,
)
WINDOW = "1000,660"


def fill(path: Path) -> None:
    """Two days: busy at noon, quiet at night, a sale in the second evening."""
    chance = random.Random(7)
    now = FIRST_MS
    with open_store(path, CONFIG, clock=lambda: now) as store:
        for minute in range(MINUTES):
            day = 1.1 - math.cos(2 * math.pi * minute / 1440)
            sale = 2.5 * math.exp(-(((minute - 2500) / 60) ** 2))
            for _ in range(int(chance.gauss(30 * (day + sale), 4))):
                now = FIRST_MS + minute * STEP_MS + chance.randrange(STEP_MS // 2)
                topic = chance.choices(list(TOPICS), (8, 4, 3, 1))[0]
                queue = min(chance.randrange(TOPICS[topic]), chance.randrange(TOPICS[topic] + 3))
                store.put(
                    Message(
                        topic,
                        chance.randbytes(int(chance.lognormvariate(5.5, 1.2))),
                        queue_id=queue,
                        keys=[f"customer-{int(chance.paretovariate(0.8))}"],
                        born_timestamp=now - int(chance.lognormvariate(1.5, 0.9)),
                    )
                )
        with store.consumer("billing", "payments", timeout_s=0.0) as consumer:
            for number, message in enumerate(consumer):
                consumer.acknowledge(message)
                if number > 20_000:
                    break


def main() -> None:
    """Make the store, its report and the picture."""
    with tempfile.TemporaryDirectory(prefix="flintlog-picture-") as folder:
        store, page = Path(folder) / "shop", Path(folder) / "report.html"
        fill(store)
        command = [sys.executable, "-m", "flintlog.cli.main", "pipeline", "report", "shop", "--html", str(page)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WINDOW}",
             f"--screenshot={PICTURE}", page.as_uri()],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    sys.stdout.write(f"{PICTURE}: {PICTURE.stat().st_size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main()
