"""The README and the guides, run. Pages that need Spark are run by `tests/pipeline/jobs/test_pages.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import ROOT, Golden, PageRun, is_as_shown, read_blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]
ON_SPARK = frozenset(
    {"README.md", "pipeline.md", "history.md", "lakehouse.md", "notebook.md", "object-storage.md", "spark-submit.md"}
)
MOST_NOT_RUN = 8


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in ON_SPARK], ids=_name)
def test_what_a_page_shows_happens(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    PageRun(page, tmp_path, monkeypatch, golden).run()


def test_few_blocks_are_not_run() -> None:
    blocks = [(page.name, block) for page in PAGES for block in read_blocks(page.read_text("utf-8"))]
    run = [name for name, block in blocks if block.language in ("python", "console") and not block.reason_not_to_run]
    not_run = [f"{name}:{block.line}" for name, block in blocks if block.reason_not_to_run]
    assert len(run) > 10 and "README.md" in run
    assert len(not_run) <= MOST_NOT_RUN, not_run


def _run(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = folder / "page.md"
    page.write_text(text, "utf-8")
    place = folder / "place"
    place.mkdir()
    PageRun(page, place, monkeypatch, golden=lambda case: folder / case).run()


def test_a_page_that_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(
        "```python\nfrom flintlog import Message, open_store\nwith open_store('s') as store:\n"
        "    print(store.put(Message('t', b'x')).check().queue_offset)\n```\n\n```output\n0\n```\n\n"
        "```python\nprint(store.path.name)\n```\n\n```output\ns\n```\n\n"
        "<!-- not run: it would hurt -->\n```console\n$ exit 1\n```\n\n"
        "```console\n$ flintlog verify s\nnothing found (full): 1 …\n$ flintlog explain nothing-known\n…\n"
        "$ echo $?\n2\n$ ls s | head -1\ncheckpoint\n```\n",
        tmp_path,
        monkeypatch,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", "page.md:6 shows"),
        ("```console\n$ echo one\ntwo\n```\n", "page.md:2 shows"),
        ("```console\n$ flintlog explain nothing-known\n…\n```\n", "ended with 2"),
        ("```console\n$ false\n$ echo more\nmore\n```\n", "ended with 1"),
        ("```console\n$ true\n$ echo $?\n1\n```\n", "page.md:3 shows"),
        ("```console\nno command\n```\n", "output without a command"),
    ],
)
def test_a_page_that_is_wrong(text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=complaint):
        _run(text, tmp_path, monkeypatch)


def test_a_page_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINTLOG_WRITE_PAGES", "1")
    shown = (
        "# A\n\n```console\n$ echo one\ntwo\n$ echo four\nf…r\n```\n\n```python\nprint(5)\n```\n\n```output\n6\n```\n"
    )
    _run(shown, tmp_path, monkeypatch)
    assert (tmp_path / "page.md").read_text("utf-8") == shown.replace("two", "one").replace("6", "5")


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("stored 2026-01-02T03:04:05.678Z", "stored 2031-11-12T13:14:15.016Z", True),
        ("stored 2026-01-02T03:04:05.678Z", "stored at no time", False),
        ("took 3 ms, 7 messages", "took 45 ms, 7 messages", True),
        ("took 3 ms, 7 messages", "took 3 ms, 8 messages", False),
        ("a     b\n────\n1     2", "  a b  \n──────\n  1 2", True),
        ("one\n…\nfour", "one\ntwo\nthree\nfour", True),
        ("one\n…\nfour", "one\ntwo", False),
        ("one … three", "one two three", True),
        ("one … three", "one two\nthree", False),
        ("", "something", False),
        ("offset 4740 of 20261116124325586", "offset 4740 of 20270101000000000", True),
        ("offset 4740", "offset 4741", False),
    ],
)
def test_what_may_differ(shown: str, printed: str, is_right: bool) -> None:
    assert is_as_shown(shown, printed) is is_right
