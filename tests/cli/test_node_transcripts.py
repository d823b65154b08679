"""What nodes print that run until they are stopped, and what `replica status` says of them: real processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.run.test_serve import OPTIONS
from tests.cli.transcript import FORMS, check, masked
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.cli.main import run

PATIENCE_S = 30
PORTS = ((r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"), (r'port": \d+', 'port": PORT'))


@contextmanager
def serving(room: Path, name: str, form: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node and its output once it listens; killed at the end if it still runs."""
    (room / "config.json").write_text(json.dumps(OPTIONS))
    command = [sys.executable, "-m", "flintlog.cli.main", "serve", str(room / name), *arguments, "--port", "0"]
    command += ["--config", str(room / "config.json"), "-o", form]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert node.stdout is not None
    try:
        said = node.stdout.readline()
        while form == "json" and not said.endswith("}\n"):
            line = node.stdout.readline()
            assert line, said
            said += line
        yield node, said
    finally:
        node.kill()
        node.communicate()


def _fill(store: Path) -> int:
    with open_store(store, SMALL) as opened:
        for number in range(50):
            opened.put(Message("orders", b"%d" % number)).check()
        return opened.replication.raw_log.end


@pytest.mark.parametrize("form", FORMS)
def test_a_master_prints_where_it_listens_and_stops_at_a_signal(form: str, tmp_path: Path) -> None:
    arguments = ["--role", "master", "--ha-port", "0", "--metrics-port", "0"]
    with serving(tmp_path, "store", form, *arguments) as (node, said):
        node.send_signal(signal.SIGTERM)
        out, err = node.communicate(timeout=PATIENCE_S)
    line = f"$ flintlog serve STORE {' '.join(arguments)} --port 0 -o {form}\n"
    printed = f"{line}{said}{out}" + (f"(stderr)\n{err}" if err else "") + f"(exit code {node.returncode})\n"
    check("serve", form, masked(printed, tmp_path / "store", tmp_path, PORTS))


@pytest.mark.parametrize("form", FORMS)
def test_a_pair_is_shown_with_roles_positions_and_lag(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = _fill(tmp_path / "a")
    with serving(tmp_path, "a", "table", "--role", "master", "--ha-port", "0") as (_, said):
        port, ha_port = re.findall(r"[\d.]+:\d+", said)
        slave = ["--role", "slave", "--ha-master", ha_port, "--master-remoting", port]
        with serving(tmp_path, "b", "table", *slave):
            deadline = time.monotonic() + PATIENCE_S
            while not _is_even(port, end, capsys):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            code = run(["replica", "status", port, "-o", form])
    captured = capsys.readouterr()
    printed = f"$ flintlog replica status 127.0.0.1:PORT -o {form}\n{captured.out}(exit code {code})\n"
    check("replica-status-pair", form, masked(printed, tmp_path / "a", tmp_path, PORTS))


def _is_even(port: str, end: int, capsys: pytest.CaptureFixture[str]) -> bool:
    assert run(["replica", "status", port, "-o", "jsonl"]) in (0, 1)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return len(rows) == 2 and all(row["log_end"] == end for row in rows) and rows[1]["lag_bytes"] == 0
