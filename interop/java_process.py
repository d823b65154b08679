"""A Java process of ours: starts it, calls it through Py4J, and ends it, cleanly or by force.

The process ends by itself when its standard input closes, so it does not outlive a parent that was killed. Java's
output is kept in a file and quoted in errors.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from flintlog.errors import FlintlogError
from interop.java_runtime import JavaRuntime, java_runtime

START_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.01

# A test's JVM lives for seconds: quick to start matters more than fast when warm.
SHORT_LIVED = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class EntryPoint(Protocol):
    """The methods of JavaStore.java; every file argument is a path to lines of JSON."""

    def load(self, directory: str, settings: str) -> str: ...
    def start(self) -> None: ...
    def follow(self, address: str) -> None: ...
    def info(self) -> str: ...
    def figures(self) -> str: ...
    def setClock(self, now_ms: int) -> None: ...  # noqa: N802 (Java's name)
    def waitDispatched(self) -> bool: ...  # noqa: N802
    def put(self, requests: str, receipts: str) -> int: ...
    def messages(self, file: str) -> int: ...
    def queues(self, file: str) -> int: ...
    def entries(self, file: str) -> int: ...
    def answer(self, requests: str, answers: str) -> int: ...
    def measurePuts(self, task: str) -> str: ...  # noqa: N802
    def measure(self, directory: str, task: str) -> str: ...
    def shutdown(self) -> None: ...


class JavaProcess:
    """One JVM. Owned by one thread; `end` may be called any number of times."""

    def __init__(
        self,
        main_class: str = "flintlog.JavaStore",
        *,
        runtime: JavaRuntime | None = None,
        jvm_options: Sequence[str] = SHORT_LIVED,
    ) -> None:
        self._room = tempfile.TemporaryDirectory(prefix="flintlog-java-")
        self.directory = Path(self._room.name)
        self._output = self.directory / "output"
        token = secrets.token_hex(16)
        command = (runtime or java_runtime()).command(main_class, jvm_options)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._send_line(token)
            self._gateway = _connect(self._await_port(), token)
            self.entry_point = cast(EntryPoint, self._gateway.entry_point)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill the process; a store keeps what a crash leaves."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._tidy()

    def end(self) -> None:
        """Close the connection and kill the process; a store is not shut down by this."""
        gateway = getattr(self, "_gateway", None)
        try:
            if gateway is not None:
                gateway.close()
        except (AttributeError, OSError):
            pass  # a call was interrupted in its middle, and Py4J's connection is broken
        finally:
            self.kill()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def output(self) -> str:
        """What Java printed so far."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def _send_line(self, text: str) -> None:
        if self._process.stdin is None:
            raise FlintlogError("the Java process has no standard input")
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()

    def _await_port(self) -> int:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self.output().splitlines():
                if line.startswith("gateway ") and line[8:].isdigit():
                    return int(line[8:])
            time.sleep(POLL_INTERVAL_S)
        raise FlintlogError("the Java process did not start", advice=self.output()[-2000:])

    def _tidy(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._room.cleanup()


class _Gateway(Protocol):
    entry_point: object

    def close(self) -> None: ...


def _connect(port: int, token: str) -> _Gateway:
    from py4j.java_gateway import GatewayParameters, JavaGateway

    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=False)
    return cast(_Gateway, JavaGateway(gateway_parameters=parameters))
