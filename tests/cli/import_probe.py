"""Says which modules a command line needs, for many command lines: each runs in a fork of a fresh interpreter.

Reads a JSON array of command lines from standard input; writes, for each, its exit code and the names in `sys.modules`.
The parent has imported what `flintlog` itself imports before it knows the command, and nothing else.
"""

from __future__ import annotations

import json
import os
import sys

from flintlog.cli import main


def modules_after(line: list[str]) -> tuple[int, list[str]]:
    """Run a command line in a child; its exit code, and what is imported then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        code = main.run(line)
        with os.fdopen(writing, "w") as pipe:
            json.dump([int(code), sorted(sys.modules)], pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        code, modules = json.load(pipe)
    os.waitpid(child, 0)
    return code, modules


if __name__ == "__main__":
    json.dump([modules_after(line) for line in json.load(sys.stdin)], sys.stdout)
