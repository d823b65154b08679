"""Reading through queues and index: the rows are those of the full scan that a filter chooses, whatever is damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import small_config

from flintlog import Message, open_store
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.format.sys_flag import TransactionType
from flintlog.pipeline.reading import narrow
from flintlog.pipeline.reading.decoding import Decoding
from flintlog.pipeline.reading.filters import Range, Wanted
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.partitions import LogSplit, plan
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape

Row = dict[str, Any]
Choice = tuple[Wanted, Callable[[Row], bool]]

COLUMNS = (None, ("topic", "body"), ("physical_offset",), ("physical_offset",), ("keys", "tags_code"))
GOLDEN = ("plain", "batch", "transaction", "multi", "cqext", "delay", "ha/master", "ha/slave", "ledger/mixed")


@pytest.fixture(autouse=True)
def cheap_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stores would be scanned: their queues are not worth it."""
    monkeypatch.setattr(narrow, "QUEUE_COST_BYTES", 1)
    monkeypatch.setattr(narrow, "MOST_OF_A_SPLIT", 0.95)
    monkeypatch.setattr(narrow, "PART_BYTES", 300_000)


def splits_of(root: Path, split_bytes: int) -> list[LogSplit]:
    (log,) = find_logs((str(root),), strict=False)
    return plan([(log, log.first, find_end(log))], split_bytes=split_bytes, least_count=1)


def rows_of(
    root: Path, wanted: Wanted, split_bytes: int = 1 << 20, columns: tuple[str, ...] | None = None
) -> list[Row]:
    reading = Reading(RowShape(chosen=columns), fail_on_data_loss=False, wanted=wanted)
    return [row for split in splits_of(root, split_bytes) for batch in reading.read(split) for row in batch.to_pylist()]


def draw_choice(rng: random.Random, rows: list[Row]) -> Choice:
    """A filter, as ours and as a function of a row."""
    topics = [*sorted({row["topic"] for row in rows}), "nothing"]
    some = frozenset(rng.sample(topics, min(len(topics), rng.choice((1, 1, 2)))))
    row = rng.choice(rows)
    low, high = sorted(rng.choice(rows)["queue_offset"] for _ in range(2))
    prefix = row["topic"][:3]
    found: list[Choice] = [
        (Wanted(topics=some), lambda row: row["topic"] in some),
        (Wanted(topic_prefixes=(prefix,)), lambda row: row["topic"].startswith(prefix)),
        (Wanted(topic_pattern=".*s"), lambda row: row["topic"].endswith("s")),
        (
            Wanted(topics=some, ranges={"queue_id": Range(0, 0), "queue_offset": Range(low, high)}),
            lambda row: row["topic"] in some and row["queue_id"] == 0 and low <= row["queue_offset"] <= high,
        ),
        (
            Wanted(topics=some, ranges={"store_timestamp": Range(last=row["store_timestamp"])}),
            lambda each: each["topic"] in some and each["store_timestamp"] <= row["store_timestamp"],
        ),
        (
            Wanted(ranges={"queue_id": Range(1), "physical_offset": Range(row["physical_offset"])}),
            lambda each: each["queue_id"] >= 1 and each["physical_offset"] >= row["physical_offset"],
        ),
    ]
    keyed = [each for each in rows if each["keys"] or each["uniq_key"]]
    if keyed:
        found += key_choices(rng.choice(keyed), some)
    return rng.choice(found)


def key_choices(row: Row, topics: frozenset[str]) -> list[Choice]:
    keys, uniq = frozenset({*row["keys"][:1], "k-no"}), frozenset({row["uniq_key"] or "none"})
    return [
        (Wanted(keys=keys), lambda each: bool(keys & {*each["keys"]})),
        (Wanted(uniq_keys=uniq), lambda each: each["uniq_key"] in uniq),
        (
            Wanted(keys=keys, ranges={"queue_id": Range(0, 1)}),
            lambda each: bool(keys & {*each["keys"]}) and each["queue_id"] <= 1,
        ),
        (Wanted(uniq_keys=uniq, topics=topics), lambda each: each["uniq_key"] in uniq and each["topic"] in topics),
    ]


def assert_same_rows(root: Path, rng: random.Random, count: int = 12) -> None:
    everything = rows_of(root, Wanted())
    assert everything
    for _ in range(count):
        wanted, chooses = draw_choice(rng, everything)
        split_bytes = rng.choice((5_000 if len(everything) < 500 else 30_000, 50_000, 1 << 20))
        columns = rng.choice(
            (None, ("topic", "body"), ("physical_offset",), ("physical_offset",), ("keys", "tags_code"))
        )
        expected = [row for row in everything if chooses(row)]
        if columns is not None:
            expected = [{name: value for name, value in row.items() if name in columns} for row in expected]
        assert rows_of(root, wanted, split_bytes, columns) == expected, (wanted, split_bytes, columns)


@contextmanager
def counted_scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, ...]]]:
    scans: list[tuple[object, ...]] = []
    own = Decoding.scan

    def scan(self: Decoding, *places: int) -> Iterator[Any]:
        scans.append(places)
        return own(self, *places)

    with monkeypatch.context() as patch:
        patch.setattr(Decoding, "scan", scan)
        yield scans


# ---------------------------------------------------------------------- stores


@pytest.mark.parametrize("case", GOLDEN)
def test_a_golden_store_has_the_rows_of_the_scan(golden: Callable[[str], Path], case: str) -> None:
    name, _, part = case.partition("/")
    root = golden(name) / part / "store" if name == "ledger" else golden(name) / (part or "store")
    assert_same_rows(root, random.Random(case), 5)


@pytest.mark.parametrize("case", ["plain", "batch", "multi", "cqext", "delay"])
def test_the_rarest_topic_of_a_golden_store_is_read_without_a_scan(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    root = golden(case) / "store"
    rows = rows_of(root, Wanted())
    counts = {topic: sum(row["topic"] == topic for row in rows) for topic in {row["topic"] for row in rows}}
    rarest = min(counts, key=lambda topic: counts[topic])
    monkeypatch.setattr(narrow, "PART_BYTES", 1 << 30)
    with counted_scans(monkeypatch) as scans:
        found = rows_of(root, Wanted(topics=frozenset({rarest})))
    assert (len(found), scans) == (counts[rarest], [])


@pytest.mark.parametrize("case", ["plain", "batch", "multi", "cqext", "delay"])
def test_a_key_of_a_golden_store_is_found_without_a_scan(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    root = golden(case) / "store"
    rows = [row for row in rows_of(root, Wanted()) if row["keys"]]
    monkeypatch.setattr(narrow, "PART_BYTES", 1 << 30)
    with counted_scans(monkeypatch) as scans:
        for row in (rows[0], rows[-1]):
            key = row["keys"][0]
            expected = [each["physical_offset"] for each in rows if key in each["keys"]]
            found = rows_of(root, Wanted(keys=frozenset({key})), columns=("physical_offset",))
            assert [each["physical_offset"] for each in found] == expected
    assert scans == []


TOPICS = ("orders", "orders", "orders", "payments", "payments", "refunds", "%RETRY%cg", "日志")


def fill_random(root: Path, rng: random.Random, count: int = 250) -> Path:
    """Messages of several topics and queues, with light queues, prepared and rolled back ones, keys and delays."""
    config = small_config(enable_lmq=True, enable_multi_dispatch=True, services={"schedule"})
    with open_store(root, config) as store:
        for number in range(count):
            is_light = rng.random() < 0.1
            kind = rng.choice((0, 0, 0, 0, TransactionType.PREPARED, TransactionType.ROLLBACK, TransactionType.COMMIT))
            properties = {"UNIQ_KEY": f"u{number}"} if rng.random() < 0.7 else {}
            message = Message(
                rng.choice(TOPICS),
                rng.randbytes(rng.randrange(400)),
                queue_id=rng.randrange(3),
                keys=[f"k{rng.randrange(20)}"] if rng.random() < 0.5 else [],
                sys_flag=0 if is_light else int(kind),
                delay_level=1 if rng.random() < 0.05 and (is_light or not kind) else 0,
                properties=properties | ({"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"} if is_light else {}),
            )
            store.put(message).check()
        if rng.random() < 0.3:
            store.cleaning.clean_unused_topics({*TOPICS, SCHEDULE_TOPIC} - {"refunds"})
            store.put(Message("refunds", b"again")).check()
    return root


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("random")
    return [fill_random(folder / str(seed), random.Random(seed)) for seed in range(4)]


@pytest.mark.parametrize("number", range(4))
def test_a_random_store_has_the_rows_of_the_scan(stores: list[Path], number: int) -> None:
    assert_same_rows(stores[number], random.Random(number), 15)


# ---------------------------------------------------------------------- damage


def queue_folders(root: Path) -> list[Path]:
    return sorted(folder for folder in (root / "consumequeue").glob("*/*") if any(folder.iterdir()))


def lose_queue(root: Path, rng: random.Random) -> None:
    shutil.rmtree(rng.choice(queue_folders(root)))


def lose_topic(root: Path, rng: random.Random) -> None:
    shutil.rmtree(rng.choice(queue_folders(root)).parent)


def lose_file(root: Path, rng: random.Random) -> None:
    rng.choice(sorted(rng.choice(queue_folders(root)).iterdir())).unlink()


def swap_queues(root: Path, rng: random.Random) -> None:
    one, other = rng.sample(queue_folders(root), 2)
    one.rename(root / "aside")
    other.rename(one)
    (root / "aside").rename(other)


def rename_topic(root: Path, rng: random.Random) -> None:
    folder = rng.choice(queue_folders(root)).parent
    folder.rename(folder.with_name("other"))


def rename_queue(root: Path, rng: random.Random) -> None:
    folder = rng.choice(queue_folders(root))
    folder.rename(folder.with_name("7"))


def copy_queue(root: Path, rng: random.Random) -> None:
    one, other = rng.sample(queue_folders(root), 2)
    shutil.rmtree(other)
    shutil.copytree(one, other)


def change_entries(root: Path, rng: random.Random, change: Callable[[bytearray], bytes | bytearray]) -> None:
    path = rng.choice(sorted(rng.choice(queue_folders(root)).iterdir()))
    path.write_bytes(change(bytearray(path.read_bytes())))


def zero_entries(root: Path, rng: random.Random) -> None:
    def change(data: bytearray) -> bytes | bytearray:
        place = 20 * rng.randrange(min(20, len(data) // 20))
        return data[:place] + bytes(20 * 3) + data[place + 60 :]

    change_entries(root, rng, change)


def lose_tail(root: Path, rng: random.Random) -> None:
    """As after a crash before a queue was flushed."""

    def change(data: bytearray) -> bytes | bytearray:
        place = 20 * rng.randrange(len(data) // 20)
        return data[:place] + bytes(len(data) - place)

    change_entries(root, rng, change)


def shift_entries(root: Path, rng: random.Random) -> None:
    change_entries(root, rng, lambda data: data[20:] + bytes(20))


def flip_bits(root: Path, rng: random.Random) -> None:
    def change(data: bytearray) -> bytes | bytearray:
        for _ in range(5):
            data[rng.randrange(min(len(data), 400))] ^= 1 << rng.randrange(8)
        return bytes(data)

    change_entries(root, rng, change)


def cut_file(root: Path, rng: random.Random) -> None:
    change_entries(root, rng, lambda data: bytes(data[: rng.randrange(len(data))]))


def repeat_entry(root: Path, rng: random.Random) -> None:
    change_entries(root, rng, lambda data: data[:20] + data[:20] + data[40:])


def damage_log(root: Path, rng: random.Random) -> None:
    path = rng.choice(sorted((root / "commitlog").iterdir()))
    with path.open("r+b") as file:
        file.seek(rng.randrange(path.stat().st_size // 2))
        file.write(rng.randbytes(6))


def lose_first_log_file(root: Path, rng: random.Random) -> None:
    """As retention does, before the queues follow."""
    min((root / "commitlog").iterdir()).unlink()


def change_index(root: Path, rng: random.Random, change: Callable[[bytearray, int], None]) -> None:
    """Change an index file; `change` gets the place of one of its entries."""
    path = rng.choice(sorted((root / "index").iterdir()))
    data = bytearray(path.read_bytes())
    change(data, 40 + 4 * 100 + 20 * rng.randrange(1, 60))
    path.write_bytes(data)


def flip_hash(root: Path, rng: random.Random) -> None:
    def change(data: bytearray, place: int) -> None:
        data[place + rng.randrange(4)] ^= 1 << rng.randrange(7)

    change_index(root, rng, change)


def flip_indexed_offset(root: Path, rng: random.Random) -> None:
    def change(data: bytearray, place: int) -> None:
        data[place + rng.randrange(4, 12)] ^= 1 << rng.randrange(8)

    change_index(root, rng, change)


def cut_chains(root: Path, rng: random.Random) -> None:
    change_index(root, rng, lambda data, place: data.__setitem__(slice(40, 440), bytes(400)))


def flip_header(root: Path, rng: random.Random) -> None:
    def change(data: bytearray, place: int) -> None:
        data[rng.randrange(40)] ^= 1 << rng.randrange(8)

    change_index(root, rng, change)


def lose_index_file(root: Path, rng: random.Random) -> None:
    rng.choice(sorted((root / "index").iterdir())).unlink()


def lose_index(root: Path, rng: random.Random) -> None:
    shutil.rmtree(root / "index")


DAMAGES = [
    flip_hash,
    flip_indexed_offset,
    cut_chains,
    flip_header,
    lose_index_file,
    lose_index,
    lose_queue,
    lose_topic,
    lose_file,
    swap_queues,
    rename_topic,
    rename_queue,
    copy_queue,
    zero_entries,
    lose_tail,
    shift_entries,
    flip_bits,
    cut_file,
    repeat_entry,
    damage_log,
    lose_first_log_file,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_costs_no_row(stores: list[Path], tmp_path: Path, damage: Callable[..., None]) -> None:
    for seed in range(2):
        rng = random.Random(f"{damage.__name__} {seed}")
        copy = shutil.copytree(rng.choice(stores), tmp_path / str(seed))
        damage(copy, rng)
        assert_same_rows(copy, rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_damages_together_cost_no_row(stores: list[Path], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    copy = shutil.copytree(rng.choice(stores), tmp_path / "copy")
    for damage in rng.sample(DAMAGES, 2):
        damage(copy, rng)
    assert_same_rows(copy, rng, 20)


def test_rows_of_a_store_that_runs_are_those_of_the_scan(tmp_path: Path) -> None:
    with open_store(tmp_path, small_config()) as store:
        for number in range(200):
            store.put(Message("orders" if number % 9 else "rare", b"x" * number)).check()
            if number % 40 == 0:
                rare = Wanted(topics=frozenset({"rare"}))
                assert len(rows_of(tmp_path, rare)) == number // 9 + 1
