"""A real server of Spark Connect, in a process of its own, as `start-connect-server.sh` starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from flintlog.testing.free_ports import free_ports

ROOT = Path(__file__).parents[2]
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_TIMEOUT_S = 300


@contextmanager
def running_server(work: Path) -> Iterator[str]:
    """A server with two cores; yields its URL."""
    port = free_ports(1)[0]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.progress.reportInterval": "100ms",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "flintlog.pipeline.spark.daemon",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with (work / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [SUBMIT, "--master", "local[2]", "--class", CLASS, *options],
            env=environment(work),
            cwd=work,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(port, server, work / "server.log")
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(START_TIMEOUT_S)


def environment(work: Path) -> dict[str, str]:
    """Without settings of the process that runs the tests, which may have a session of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    own = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(work)}
    return {**kept, **own}


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start: {log.read_text()[-3000:]}")
