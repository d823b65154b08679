"""Lives of a store in processes of their own, on a device whose power is cut.

A module of lives is run as `python -m <module> <life> <folder> ...`; each life is a function. It says something when
it has come as far as the test wants, and then kills itself (`die`) or waits to be killed (`wait_for_the_cut`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tests.power.device import Device

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


def say(words: object) -> None:
    """The last words of a life, as JSON."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def die() -> NoReturn:
    """kill -9 of this process: the page cache keeps what it wrote."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


def wait_for_the_cut() -> NoReturn:
    """Go on until the test has cut the power and kills this process."""
    time.sleep(PATIENCE_S)
    raise AssertionError("nobody cut the power")


def start_life(module: ModuleType, name: str, *arguments: object, takes_input: bool = False) -> subprocess.Popen[str]:
    """Begin a life."""
    command = [sys.executable, "-m", module.__name__, name, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    stdin = subprocess.PIPE if takes_input else None
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=stdin, stdout=subprocess.PIPE, text=True)


def last_words(life: subprocess.Popen[str]) -> object:
    """What a life says when it has come as far as it should."""
    assert life.stdout is not None
    line = life.stdout.readline()
    assert line, f"a life ended with {life.wait()} before it had said anything"
    return json.loads(line)


def end_life(life: subprocess.Popen[str]) -> None:
    life.kill()
    life.wait()
    for pipe in (life.stdin, life.stdout):
        if pipe is not None:
            pipe.close()


def run_life(module: ModuleType, name: str, *arguments: object) -> object:
    """A life that ends by itself; what it said."""
    life = start_life(module, name, *arguments)
    try:
        words = last_words(life)
        life.wait(PATIENCE_S)
        return words
    finally:
        end_life(life)


def run_life_until_cut(disk: Device, module: ModuleType, name: str, *arguments: object) -> object:
    """A life that loses its power when it has spoken; the disk is mounted again after that."""
    life = start_life(module, name, *arguments)
    try:
        words = last_words(life)
        disk.cut()
    finally:
        end_life(life)
    disk.restore()
    return words


def main(lives: Mapping[str, Callable[..., None]]) -> None:
    """What a module of lives does when it is run."""
    lives[sys.argv[1]](*sys.argv[2:])
