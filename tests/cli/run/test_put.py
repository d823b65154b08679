"""`flintlog put`: what is put is there, with the sizes that the store already has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.cli import main
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]


def test_a_message_put_into_a_store_of_javas_is_there(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("transaction") / "store", store)
    line = ["put", str(store), "héllo", "second", "--topic", "orders", "--tag", "paid", "--key", "o-17"]
    assert main.run([*line, "--property", "region=eu", "-o", "jsonl"]) == 0
    receipts = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [receipt["status"] for receipt in receipts] == ["PUT_OK", "PUT_OK"]
    assert main.run(["get", str(store), "--key", "o-17", "-o", "json"]) == 0
    message = json.loads(capsys.readouterr().out)["message"]
    assert (message["body"], message["tags"], message["keys"]) == ("second", "paid", ["o-17"])
    assert message["properties"]["region"] == "eu"
    assert message["physical_offset"] == receipts[1]["physical_offset"]
    assert verify(store).findings == []


def test_a_store_is_made_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "small.conf"
    config.write_text("mappedFileSizeCommitLog=65536\nmaxIndexNum=100\nmaxHashSlotNum=20\n")
    line = ["put", str(tmp_path / "new"), "x", "--topic", "t", "--config", str(config), "-o", "json"]
    assert main.run(line) == 3
    assert not (tmp_path / "new").exists()
    assert main.run([*line, "--create"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["queue_offset"] == 0


@pytest.mark.parametrize("rest", [[], ["x", "--lines"], ["x", "--property", "novalue"]])
def test_wrong_usage_is_2(rest: list[str], tmp_path: Path) -> None:
    assert main.run(["put", str(tmp_path / "s"), "--topic", "t", *rest]) == 2
