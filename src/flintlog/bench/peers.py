"""Measures other ways to keep messages in a Python program, at the tasks that they can do.

Each keeps the body under a number that counts up, and a second entry from the key to that number, which is what a
store's index gives. They have no queues, filters or recovery of a torn tail, so this is the least they would cost.

| peer | asynchronous put | synced put |
|---|---|---|
| sqlite | a transaction each, WAL, synchronous=OFF | a transaction each, WAL, synchronous=FULL |
| rocksdict | write-ahead log, not synced | synced; RocksDB groups writers itself |
| lmdb | a transaction each, sync=False | a transaction each, synced |
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

import msgspec

from flintlog.bench.tasks import (
    BATCH_COUNT,
    PUTS_A_LOOK,
    QUEUE_COUNT,
    TOPIC,
    Measurement,
    Meter,
    Task,
    Window,
    body_of,
    run_in_threads,
)
from flintlog.errors import MissingExtra

Pair = tuple[int, str]


class PeerMessage(msgspec.Struct, gc=False):
    """A message as one would keep it in a key-value store: MessagePack of the fields that ours has as well."""

    topic: str
    queue_id: int
    tags: str
    keys: list[str]
    properties: dict[str, str]
    born_timestamp: int
    body: bytes


class Engine(Protocol):
    """The methods of a peer: keep (number, key) pairs with a value, and return all values in order."""

    def put(self, pairs: Sequence[Pair], body: bytes) -> None: ...
    def bodies(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class SqliteEngine:
    """The standard library's database; one writer at a time, by its nature."""

    version = f"SQLite {sqlite3.sqlite_version}"

    def __init__(self, directory: Path, synced: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(directory / "messages.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")
        self._db.execute("CREATE TABLE IF NOT EXISTS message (number INTEGER PRIMARY KEY, key TEXT, body BLOB)")
        self._db.execute("CREATE INDEX IF NOT EXISTS by_key ON message (key)")

    def put(self, pairs: Sequence[Pair], body: bytes) -> None:
        """One transaction."""
        insert = "INSERT INTO message VALUES (?, ?, ?)"
        with self._lock:
            if len(pairs) == 1:
                self._db.execute(insert, (*pairs[0], body))
                return
            self._db.execute("BEGIN")
            self._db.executemany(insert, [(*pair, body) for pair in pairs])
            self._db.execute("COMMIT")

    def bodies(self) -> Iterator[bytes]:
        """All bodies, read in pages."""
        cursor = self._db.execute("SELECT body FROM message ORDER BY number")
        cursor.arraysize = BATCH_COUNT
        while rows := cursor.fetchmany():
            for (body,) in rows:
                yield body

    def close(self) -> None:
        """Close the database."""
        self._db.close()


class RocksEngine:
    """RocksDB through rocksdict."""

    def __init__(self, directory: Path, synced: bool) -> None:
        rocksdict = _package("rocksdict")
        self._batch_type = rocksdict.WriteBatch
        self._options = rocksdict.WriteOptions()
        self._options.sync = synced
        self._db = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))

    def put(self, pairs: Sequence[Pair], body: bytes) -> None:
        """One write batch."""
        batch = self._batch_type(raw_mode=True)
        for number, key in pairs:
            place = number.to_bytes(8, "big")
            batch.put(b"m" + place, body)
            batch.put(b"k" + key.encode(), place)
        self._db.write(batch, self._options)

    def bodies(self) -> Iterator[bytes]:
        """All bodies, by an iterator of the database."""
        for key, body in self._db.items(from_key=b"m"):
            if key[:1] == b"m":
                yield body

    def close(self) -> None:
        """Close the database."""
        self._db.close()


class LmdbEngine:
    """LMDB: a memory-mapped B+ tree, one writer at a time."""

    MAP_BYTES = 64 * 1024**3

    def __init__(self, directory: Path, synced: bool) -> None:
        lmdb = _package("lmdb")
        directory.mkdir(parents=True, exist_ok=True)
        self._env = lmdb.open(str(directory), map_size=self.MAP_BYTES, max_dbs=2, sync=synced, max_spare_txns=64)
        self._messages, self._keys = self._env.open_db(b"messages"), self._env.open_db(b"keys")

    def put(self, pairs: Sequence[Pair], body: bytes) -> None:
        """One transaction."""
        with self._env.begin(write=True) as transaction:
            for number, key in pairs:
                place = number.to_bytes(8, "big")
                # Producers reach the lock in any order, so the number is not always the greatest yet.
                transaction.put(place, body, db=self._messages)
                transaction.put(key.encode(), place, db=self._keys)

    def bodies(self) -> Iterator[bytes]:
        """All bodies, by a cursor."""
        with self._env.begin(db=self._messages) as transaction:
            for _, body in transaction.cursor():
                yield body

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class Peer:
    """An engine as a contender."""

    def __init__(self, name: str, version: str, make: Callable[[Path, bool], Engine]) -> None:
        self.name = name
        self.version = version
        self._make = make

    def prepare(self, task: Task, window: Window, directory: Path) -> None:
        """Write what `get` reads."""
        if task.kind != "get":
            return
        engine, body = self._make(directory, False), body_of(task)
        for number in range(window.get_count):
            engine.put([(number, f"key{number}")], _encode_message(number, body))
        engine.close()

    def measure(self, task: Task, window: Window, directory: Path) -> Measurement | None:
        """Puts and gets; a peer has no queues to rebuild or to wait for, and no lock to choose."""
        if task.kind in ("cold", "rebuild", "visible", "synced-async") or (task.kind == "put" and task.threads > 1):
            return None
        engine = self._make(directory, task.kind == "synced")
        try:
            return _read(engine, window) if task.kind == "get" else _write(engine, task, window)
        finally:
            engine.close()

    def close(self) -> None:
        """Nothing to close."""


def _write(engine: Engine, task: Task, window: Window) -> Measurement:
    body = body_of(task)
    numbers = itertools.count()
    waits_ns: list[int] = []
    counts: list[int] = []
    at_once = BATCH_COUNT if task.kind == "batch" else 1
    looks = 1 if task.kind == "synced" else max(1, PUTS_A_LOOK // at_once)

    def produce(deadline: float) -> None:
        done = 0
        while (begin := time.perf_counter()) < deadline:
            for _ in range(looks):
                taken = [next(numbers) for _ in range(at_once)]
                engine.put([(number, f"key{number}") for number in taken], body)
            done += looks * at_once
            if task.kind == "synced":
                waits_ns.append(int((time.perf_counter() - begin) * 1e9))
        counts.append(done)

    meter = Meter()
    run_in_threads(task.threads, lambda: produce(meter.deadline(window.seconds)))
    meter.stop()
    return meter.measurement(sum(counts), waits_ns)


def _encode_message(number: int, body: bytes) -> bytes:
    properties = {"UNIQ_KEY": f"7F0000010001{number}"}
    message = PeerMessage(TOPIC, number % QUEUE_COUNT, "TagA", [f"key{number}"], properties, number, body)
    return msgspec.msgpack.encode(message)


def _read(engine: Engine, window: Window) -> Measurement:
    """Read pages of messages as objects and access each body, as our own `get` is measured."""
    meter = Meter()
    deadline = meter.deadline(window.seconds)
    decode = msgspec.msgpack.Decoder(PeerMessage).decode
    count = 0
    while time.perf_counter() < deadline:
        values = engine.bodies()
        while page := [decode(value) for value in itertools.islice(values, BATCH_COUNT)]:
            for message in page:
                count += 1 if message.body else 0
            if time.perf_counter() >= deadline:
                break
    meter.stop()
    return meter.measurement(count)


def sqlite_peer() -> Peer:
    """SQLite, always there."""
    return Peer("sqlite", SqliteEngine.version, SqliteEngine)


def rocksdict_peer() -> Peer:
    """RocksDB, if its package is installed."""
    _package("rocksdict")
    return Peer("rocksdict", f"rocksdict {importlib.metadata.version('rocksdict')}", RocksEngine)


def lmdb_peer() -> Peer:
    """LMDB, if its package is installed."""
    _package("lmdb")
    return Peer("lmdb", f"lmdb {importlib.metadata.version('lmdb')}", LmdbEngine)


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise MissingExtra(f"the package {name} is not installed", advice=f"pip install {name}") from missing
