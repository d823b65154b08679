"""Looking commands agree with the truth about golden stores, and change nothing."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_tree import command_lines
from tests.store.golden_cases import host, lines

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.maintenance.inspect.dump import FILE_KINDS, dump_file, encode_rows
from flintlog.maintenance.inspect.file_kinds import kind_of

Golden = Callable[[str], Path]
Run = Callable[..., Any]

CASES = ["batch", "cqext", "delay", "multi", "plain", "transaction"]
_SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line with JSON output; gives what it printed, and fails on another exit code."""

    def call(*arguments: object, code: int = 0) -> Any:  # noqa: ANN401 - JSON is what it is
        assert main.run([*map(str, arguments), "-o", "json"]) == code
        return json.loads(capsys.readouterr().out)

    return call


# ---------------------------------------------------------------------- agreement with the manifests


@pytest.mark.parametrize("case", CASES)
def test_cat_shows_every_message_of_the_manifest(case: str, golden: Golden, run: Run) -> None:
    shown = {row["physical_offset"]: row for row in run("cat", golden(case) / "store", "--body", "hex")}
    for line in lines(golden(case) / "manifest.jsonl"):
        row = shown[line["physicalOffset"]]
        body = bytes.fromhex(row["body"])
        if "recordSha256" in line and row["queue_offset"] == line["queueOffset"]:
            assert hashlib.sha256(body).hexdigest() == line["bodySha256"] or line.get("bodySha256") is None
        assert (row["topic"], row["queue_id"], row["size"]) == (line["topic"], line["queueId"], line["size"])
        assert row["born_host"] == host(line["bornHost"])
    offsets = list(shown)
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("case", CASES)
def test_ls_queues_has_javas_offsets(case: str, golden: Golden, run: Run) -> None:
    reported = [line for line in lines(golden(case) / "queues.jsonl") if line["kind"] == "queue"]
    shown = {(row["topic"], row["queue_id"]): row for row in run("ls", "queues", golden(case) / "store")}
    assert len(shown) == len(reported)
    for line in reported:
        row = shown[line["topic"], line["queueId"]]
        assert (row["min_offset"], row["max_offset"]) == (line["min"], line["max"])


@pytest.mark.parametrize("case", CASES)
def test_info_knows_the_ends_of_the_log(case: str, golden: Golden, run: Run) -> None:
    shown = run("info", golden(case) / "store")
    reported = lines(golden(case) / "manifest.jsonl")
    assert shown["min_offset"] == 0
    assert shown["max_offset"] >= reported[-1]["physicalOffset"] + reported[-1]["size"]
    assert shown["is_clean"] is True


@pytest.mark.parametrize("case", ["plain", "batch", "cqext"])
def test_get_finds_what_java_finds_by_key(case: str, golden: Golden, run: Run) -> None:
    asked = [line for line in lines(golden(case) / "queries.jsonl") if line["kind"] == "key" and line["indexOffsets"]]
    asked = [line for line in asked if not line["indexType"] and line["begin"] == 0 and line["end"] == 2**63 - 1]
    assert asked
    for line in asked[:12]:
        found = run("get", golden(case) / "store", "--key", line["key"], "--topic", line["topic"])
        assert found["message"]["physical_offset"] in line["indexOffsets"]
        places = [place for place in found["references"] if place["kind"] == "index-entry"]
        assert any(place["key"] == f"{line['topic']}#{line['key']}" for place in places)


def test_get_names_one_message_in_every_way(golden: Golden, run: Run) -> None:
    store = golden("plain") / "store"
    by_offset = run("get", store, "--physical", 560)
    message = by_offset["message"]
    assert by_offset == run("get", store, "--id", message["message_id"])
    place = ["--topic", message["topic"], "--queue", message["queue_id"], "--offset", message["queue_offset"]]
    assert by_offset == run("get", store, *place)
    (entry,) = [place for place in by_offset["references"] if place["kind"] == "queue-entry"]
    assert (entry["offset"], entry["is_right"]) == (message["queue_offset"] * 20, True)
    assert len([place for place in by_offset["references"] if place["kind"] == "index-entry"]) >= len(message["keys"])


def test_a_message_that_is_not_there_is_3(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["get", str(golden("plain") / "store"), "--physical", "1"]) == 3
    assert capsys.readouterr().err == "there is no such message\n"


def test_filters_of_cat(golden: Golden, run: Run) -> None:
    store = golden("plain") / "store"
    every = run("cat", store, "--body", "none")
    assert run("cat", store, "--tag", "TagA || TagB", "--body", "none") == [
        row for row in every if row["tags"] in ("TagA", "TagB")
    ]
    key = next(row["keys"][0] for row in every if row["keys"])
    assert run("cat", store, "--key", key, "--body", "none") == [row for row in every if key in row["keys"]]
    middle = every[len(every) // 2]
    at = middle["store_timestamp"]
    assert run("cat", store, "--from", at, "--body", "none") == [row for row in every if row["store_timestamp"] >= at]
    assert run("cat", store, "--until", at, "--body", "none") == [row for row in every if row["store_timestamp"] < at]
    place = middle["physical_offset"]
    assert run("cat", store, "--from", f"@{place}", "--limit", 1, "--body", "none") == [middle]
    where = run("cat", store, "--where", "TAGS = 'TagA'", "--topic", "orders", "--body", "none")
    assert where == [row for row in every if row["tags"] == "TagA" and row["topic"] == "orders"] != []


def test_a_cut_answer_says_so(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["cat", str(golden("plain") / "store"), "--limit", "3000", "-o", "jsonl"])
    assert "cut" not in capsys.readouterr().err
    main.run(["cat", str(golden("plain") / "store"), "--limit", "2999", "-o", "jsonl"])
    assert capsys.readouterr().err == "cut after 2999 messages; --limit shows more\n"


def test_notes_are_left_out_if_asked_and_reasons_shown_only_if_asked(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(golden("plain") / "store")
    said = {}
    for flag in ("--limit=2", "-v", "-q"):
        assert main.run(["cat", store, "--limit", "2", flag]) == 0
        said[flag] = capsys.readouterr().err
    assert "cut after 2 messages" in said["--limit=2"] and "inferred" not in said["--limit=2"]
    assert "inferred mapped_file_size_commit_log = 1048576" in said["-v"]
    assert said["-q"] == ""


def test_damage_makes_the_answer_partial(golden: Golden, run: Run) -> None:
    shown = run("cat", golden("torn") / "flip" / "before" / "store", "--body", "none", code=5)
    assert len(shown) == 1199


def test_csv_and_json_lines_have_the_same_rows(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(golden("transaction") / "store")
    main.run(["cat", store, "--limit", "5", "-o", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    main.run(["cat", store, "--limit", "5", "-o", "jsonl"])
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [int(row["physical_offset"]) for row in rows] == [row["physical_offset"] for row in objects]
    assert [row["body"] for row in rows] == [row["body"] for row in objects]


# ---------------------------------------------------------------------- dump


@pytest.mark.parametrize("case", [*CASES, "ha", "torn", "crash"])
def test_dump_then_encoding_gives_the_files_bytes(case: str, golden: Golden) -> None:
    seen = set()
    folder = golden(case)
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path.relative_to(folder))
        if not path.is_file() or kind not in FILE_KINDS or path.stat().st_size > 4 << 20:
            continue
        if case == "torn" and (kind in seen and "commitlog" not in str(path)):
            continue
        seen.add(kind)
        data = path.read_bytes()
        rows = json.loads(json.dumps(list(dump_file(kind, memoryview(data)))))
        assert encode_rows(rows) == data, path
        places = [row["offset"] for row in rows]
        assert places == sorted(places)
        assert sum(row["size"] for row in rows) == len(data)
    assert seen


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_dump_of_noise_covers_it(kind: str) -> None:
    import random

    for seed in range(20):
        chance = random.Random(seed)
        data = chance.randbytes(chance.randrange(400)) + bytes(chance.randrange(300))
        assert encode_rows(dump_file(kind, memoryview(data))) == data


# ---------------------------------------------------------------------- the program


def _program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "flintlog.cli.main", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_SOURCE)}


def test_tail_follows_a_store_that_is_written(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.put(Message("t", b"before"))
        command = _program("tail", str(tmp_path / "store"), "-f", "-o", "jsonl")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as other:
            assert other.stdout is not None
            stop = threading.Timer(30, other.kill)
            stop.start()
            assert json.loads(other.stdout.readline())["body"] == "before"
            for number in range(3):
                store.put(Message("t", f"after {number}".encode()))
                assert json.loads(other.stdout.readline())["body"] == f"after {number}"
            other.terminate()
            stop.cancel()


def test_a_reader_that_leaves_early_is_no_error(golden: Golden) -> None:
    line = f"{' '.join(_program('cat', str(golden('plain') / 'store'), '-o', 'jsonl'))} | head -1 | wc -l"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "1", "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_starts_in_less_than_a_third_of_a_second(golden: Golden, tmp_path: Path) -> None:
    """Processor time, of the best of some runs; what a command may import is held by `test_imports` on any machine."""
    store = str(golden("transaction") / "store")
    looking = [["info"], ["cat", "--limit", "1"], ["verify", "--quick"], ["get", "--physical", "0"], ["stats"]]
    looking += [["forecast"], ["retention", "--dry-run"], ["repair", "--plan"], ["tail"], ["top", "--interval", "0.1"]]
    commands = [[name, store, *rest] for name, *rest in looking]
    commands += [["ls", "files", store], ["dump", f"{store}/checkpoint"], ["explain", "torn-tail"]]
    commands += [[*words, "--help"] for words in command_lines()]
    environment = {**_environment(), "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled
    for line in commands:
        assert min(_used_s(_program(*line), environment) for _ in range(3)) < 0.3, line


def _used_s(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_wrong_usage_is_2(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(golden("plain") / "store")
    assert main.run(["get", store]) == 2
    assert main.run(["get", store, "--physical", "0", "--id", "x"]) == 2
    assert main.run(["explain", "torn-tial"]) == 2
    assert "torn-tail" in capsys.readouterr().err
    assert main.run(["cat", store, "--from", "yesterday"]) == 2
    assert main.run(["cat", store, "--where", "a = "]) == 2
    assert main.run(["dump", str(golden("plain") / "config.json"), "--type", "nonsense"]) == 2
    assert main.run(["tail", store, "-f", "-o", "json"]) == 2
    assert main.run(["verify", str(tmp_path)]) == 3


def test_info_shows_findings_only_if_there_are_any(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped byte is not seen at first sight, so no empty row says that there is nothing to find."""
    assert main.run(["info", str(golden("torn") / "flip" / "before" / "store")]) == 0
    assert "findings" not in capsys.readouterr().out
    assert main.run(["info", str(golden("torn") / "shortfile" / "before" / "store")]) == 0
    assert "findings at first sight  wrong-file-size" in capsys.readouterr().out
