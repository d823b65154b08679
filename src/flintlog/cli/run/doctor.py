"""`flintlog doctor`: what this machine and a configuration mean for a store, in plain words.

Each check is a row: its subject, what was found, whether that is fine, and what it means for a store. Only a problem
(the directory cannot be written, a sync fails) makes the exit code 1; a note does not.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, output_option, store_config_option
from flintlog.cli.run import machine
from flintlog.errors import FlintlogError
from flintlog.version import VERSION

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_COLUMNS = ("check", "found", "state", "meaning")
_EXTRAS = {
    "lz4": "LZ4 bodies",
    "zstandard": "Zstandard bodies",
    "rich": "tables",
    "pyarrow": "columns",
    "prometheus_client": "metrics",
}
_IMPLAUSIBLE_SYNC_US = 15.0
_ENOUGH_FILES = 4096
_ENOUGH_MAPS = 65_530
_OLDEST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the report."""

    check: str
    found: str
    state: Literal["fine", "note", "problem"]
    meaning: str


@click.command()
@click.argument("directory", type=LocalPath(exists=True, file_okay=False, path_type=Path), default=".")
@store_config_option
@output_option
def doctor(directory: Path, config: StoreConfig | None, output: Output) -> int:
    """Say what this machine gives a store in DIRECTORY, and what a configuration promises.

    Without --config the report covers both defaults, flintlog's and RocketMQ's.
    """
    checks = list(examine(directory, config))
    output.rows((asdict(check) for check in checks), _COLUMNS)
    return ExitCode.FINDINGS if any(check.state == "problem" for check in checks) else ExitCode.FINE


def examine(directory: Path, given: StoreConfig | None) -> Iterator[Check]:
    """All checks, in the order of the report; if the directory holds a store, with its file sizes."""
    from flintlog.store.options.store_config import StoreConfig

    config = _with_found_sizes(directory, given or StoreConfig())
    yield Check("version", f"flintlog {VERSION}, Python {platform.python_version()}", "fine", platform.platform())
    yield check_kernel()
    mount = machine.find_mount(directory)
    yield check_file_system(mount)
    yield check_sync(directory, mount, machine.measure_sync_us)
    yield check_lockable(machine.lockable_bytes(), config)
    yield check_open_files(machine.open_file_limit())
    yield check_maps(machine.map_limit(), config)
    yield check_extras()
    yield check_spark(_version_of("pyspark"))
    yield check_java(machine.find_java())
    if given is not None:
        yield check_durability(config, mount)
        yield from check_ignored(given)
    else:
        broker = _with_found_sizes(directory, StoreConfig.from_rocketmq({}))
        yield check_default_durability(config, broker, mount)


def _with_found_sizes(directory: Path, config: StoreConfig) -> StoreConfig:
    from flintlog.maintenance.inspect.store_files import look_at

    try:
        return look_at(directory, config).config
    except FlintlogError:
        return config  # no store is here yet


def _version_of(package: str) -> str | None:
    try:
        return package_version(package)
    except PackageNotFoundError:
        return None


def check_kernel() -> Check:
    """Which of the two kernels runs."""
    from flintlog import kernel

    if kernel.name == "native":
        return Check("kernel", "native", "fine", "The compiled kernel is in use.")
    meaning = (
        "The plain Python kernel is in use: right, but several times slower. A C compiler and a new installation help."
    )
    return Check("kernel", kernel.name, "note", meaning)


def check_file_system(mount: machine.Mount | None) -> Check:
    """Which file system holds the directory."""
    if mount is None:
        return Check("file system", "unknown", "note", "The system does not say which file system this is.")
    found = f"{mount.type} on {mount.point}"
    if mount.is_read_only:
        return Check("file system", found, "problem", "It is mounted read-only: a store here can only be read.")
    if mount.is_memory:
        return Check("file system", found, "note", "It is in memory: everything is lost with the power.")
    if mount.is_network:
        return Check(
            "file system", found, "note", "Another machine keeps it: locks and syncs are only as good as that one's."
        )
    return Check("file system", found, "fine", "Files are kept by this machine.")


def check_sync(directory: Path, mount: machine.Mount | None, measure: Callable[[Path], float]) -> Check:
    """How long making a page durable takes, which bounds synchronous puts of one producer."""
    try:
        taken_us = measure(directory)
    except OSError as error:
        return Check("sync", "failed", "problem", f"A page could not be written and synced here: {error.strerror}.")
    found = f"{taken_us:,.0f} µs"
    if mount is not None and mount.is_memory:
        return Check("sync", found, "note", "The directory is in memory, so nothing is synced to a disk.")
    if taken_us < _IMPLAUSIBLE_SYNC_US:
        return Check("sync", found, "note", "Too fast for a disk: the sync may return before the data is safe.")
    rate = 1e6 / taken_us
    meaning = f"One producer that waits for each put reaches about {rate:,.0f} messages/s; many share a sync."
    return Check("sync", found, "fine", meaning)


def check_lockable(limit: int | None, config: StoreConfig) -> Check:
    """Whether warm files and write buffers can stay in memory."""
    found = _limit(limit, "bytes")
    needed = config.mapped_file_size_commit_log
    if limit is None or limit >= needed:
        return Check("lockable memory", found, "fine", "A whole commit log file can be locked in memory.")
    wanted = config.warm_mapped_file_enable or config.transient_store_pool_enable
    meaning = f"Less than one commit log file ({needed:,} bytes): nothing will be locked."
    return Check("lockable memory", found, "note" if wanted else "fine", meaning)


def check_open_files(limit: int | None) -> Check:
    """How many files the process may open."""
    if limit is None or limit >= _ENOUGH_FILES:
        return Check("open files", _limit(limit, "files"), "fine", "Enough: files are mapped and closed again.")
    return Check(
        "open files", _limit(limit, "files"), "note", f"Raise it to {_ENOUGH_FILES:,} for stores with many readers."
    )


def check_maps(limit: int | None, config: StoreConfig) -> Check:
    """How many files can be mapped at once."""
    if limit is None:
        return Check("mappings", "unknown", "note", "The system does not say how many mappings a process may have.")
    found = _limit(limit, "mappings")
    if limit <= config.max_mapped_files:
        return Check(
            "mappings", found, "problem", f"max_mapped_files is {config.max_mapped_files:,}: lower it below the limit."
        )
    state: Literal["fine", "note"] = "fine" if limit >= _ENOUGH_MAPS else "note"
    return Check("mappings", found, state, f"At most {config.max_mapped_files:,} files are mapped at once.")


def check_extras() -> Check:
    """Which optional packages are there."""
    missing = [f"{name} ({what})" for name, what in _EXTRAS.items() if find_spec(name) is None]
    if not missing:
        return Check("extras", "all", "fine", "All optional packages are installed.")
    return Check("extras", "some", "fine", f"Not installed: {', '.join(missing)}.")


def check_spark(version: str | None) -> Check:
    """Whether jobs on Spark can run; nothing else needs it."""
    if version is None:
        return Check("spark", "not installed", "fine", "Only `flintlog pipeline` needs it: install flintlog[spark].")
    return Check("spark", f"pyspark {version}", "fine", "`flintlog pipeline` runs on it, with a Java beside it.")


def check_java(found: tuple[str, str | None] | None) -> Check:
    """Whether tests against the real RocketMQ could run; flintlog itself needs no Java."""
    if found is None:
        return Check("java", "none", "fine", "Only tests against the real RocketMQ need it.")
    path, version = found
    major = (version or "").split(".")[0]
    fits = major.isdecimal() and int(major) >= _OLDEST_JAVA
    meaning = f"At {path}." if fits else f"At {path}; tests against the real RocketMQ need {_OLDEST_JAVA} or newer."
    return Check("java", version or "unknown version", "fine", meaning)


def check_durability(config: StoreConfig, mount: machine.Mount | None) -> Check:
    """What an acknowledged put survives."""
    from flintlog.cli.run.durability import describe_durability

    meaning = describe_durability(config)
    if mount is not None and mount.is_memory:
        meaning += " But this directory is in memory: nothing survives a loss of power."
    is_safe = config.flush == "sync" and not (mount is not None and mount.is_memory)
    return Check("durability", f"flush={config.flush}", "fine" if is_safe else "note", meaning)


def check_ignored(config: StoreConfig) -> Iterator[Check]:
    """Options of a broker's file that do nothing here, and why."""
    for name, reason in config.ignored.items():
        yield Check("ignored option", name, "note", f"It {reason}.")


def check_default_durability(ours: StoreConfig, broker: StoreConfig, mount: machine.Mount | None) -> Check:
    """What an acknowledged put survives with flintlog's and with RocketMQ's defaults."""
    both = [
        (name, config, check_durability(config, mount)) for name, config in (("flintlog", ours), ("RocketMQ", broker))
    ]
    found = ", ".join(f"{name}: flush={config.flush}" for name, config, _ in both)
    meanings = " ".join(f"With {name}'s defaults: {check.meaning}" for name, _, check in both)
    meaning = f"No --config: the durability depends on how the store is opened. {meanings}"
    return Check("durability", found, "note", meaning)


def _limit(limit: int | None, unit: str) -> str:
    return "unlimited" if limit is None else f"{limit:,} {unit}"
