"""What the documents name is there: pages, headings, modules, files, threads, tasks, findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from scripts import rooms
from scripts.reference import PAGES

from flintlog.bench.tasks import TASKS
from flintlog.cli.group import root
from tests.pages import LANGUAGES, read_blocks

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "flintlog"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_MODULE = re.compile(r"`(flintlog(?:\.\w+)+)")
_FILE = re.compile(r"`((?:tests|interop|examples|benchmarks|scripts|docs|src|flintlog)/[\w./-]+)`")
_OF_A_STORE = re.compile(
    r"flintlog/(writer|(?:stop|queues|cut|delay|swap|batches|deleted|options|polled|reign)\.json|rebuild/?|cut(?:/.*)?)$"
)
_MACHINE = re.compile(r"/(?:work|root|home/\w+|tmp/golden)\b")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _prose(path: Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as they are made from their text."""
    headings = re.findall(r"^#+ (.+)$", _prose(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> Iterator[str]:
    """Relative links of a page that lead nowhere."""
    for link in _LINK.findall(_prose(path)):
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = path if not place else (path.parent / place).resolve()
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    assert list(broken_links(path)) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_no_page_knows_the_machine_it_was_written_on(path: Path) -> None:
    assert _MACHINE.findall(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.parent.name != "reference"], ids=_name)
def test_sentences_have_a_subject(path: Path) -> None:
    riddle = re.compile(r"(?i:\bwhoever\b|\bthe interpreter\b)|(?:^|\. )Who ", re.MULTILINE)
    assert riddle.findall(_prose(path)) == [], "name the thread, the caller, the writer; say the GIL"


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_modules_and_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    entry_points = {"flintlog.media"}
    modules = [name for name in _MODULE.findall(text) if name not in entry_points]
    assert [name for name in modules if not is_there(name)] == []
    files = [name for name in _FILE.findall(text) if not _OF_A_STORE.match(name)]
    assert [name for name in files if not (ROOT / name).exists() and not (ROOT / "src" / name).exists()] == []


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path not in DECISIONS], ids=_name)
def test_every_block_says_what_it_is(path: Path) -> None:
    text = path.read_text("utf-8")
    blocks = read_blocks(text)
    allowed = LANGUAGES | ({"pycon"} if path.parent.name == "reference" else set())
    strange = [f"line {block.line}: {block.language or 'nothing'}" for block in blocks if block.language not in allowed]
    assert strange == [], f"a block is one of {sorted(allowed)}; what is no code is text"
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks), "a block that was not read"
    assert re.findall(r"^(?:<{7} |={7}$|>{7} )", text, re.MULTILINE) == [], "a merge that was not finished"


def test_a_bad_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n[a](#a-page) [b](#b) [c](nothing.md) [d](https://example.org/x) [e](page.md#c)\n")
    assert list(broken_links(page)) == ["#b", "nothing.md", "page.md#c"]
    assert is_there("flintlog.disk.media.medium.Medium") and not is_there("flintlog.disk.nothing")


def test_every_page_is_in_the_index() -> None:
    index = _prose(ROOT / "docs" / "index.md")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in DOCUMENTS if (ROOT / "docs") in path.parents]
    listed = [name for name in pages if name != "index.md" and not name.startswith("decisions/0")]
    assert len(listed) > 10
    assert [name for name in listed if f"({name})" not in index] == []
    decisions = _prose(ROOT / "docs" / "decisions" / "README.md")
    assert [path.name for path in DECISIONS if f"({path.name})" not in decisions] == []


@pytest.mark.parametrize("path", DECISIONS, ids=_name)
def test_a_decision_is_half_a_page(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith(f"# {path.name[:4]}: ")
    assert len(text.splitlines()) <= 45


def test_decisions_are_few_and_cited_by_the_code_they_govern() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert len(numbers) <= 20, "fold what is no choice into a subject page"
    sources = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert sorted(set(re.findall(r"docs/decisions/(\d{4})", sources))) == numbers


def test_the_changes_of_a_version_fit_on_a_screen() -> None:
    _, *versions = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")
    assert versions
    assert [version.splitlines()[0] for version in versions if len(version.splitlines()) > 60] == [], "no diary"


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert [path.name for path in pictures if path.stat().st_size > 150 * 1024] == []
    assert pictures


def test_every_thread_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = [PACKAGE / room for room in ("disk", "derive", "store", "replication", "pipeline")]
    sources = [path.read_text("utf-8") for room in rooms for path in room.rglob("*.py")]
    starts = re.compile(r'(?:name(?:_prefix)?=f?|watcher=|\{|\n +)"(flintlog-[a-z-]+)')
    made = {name for source in sources for name in starts.findall(source)}
    named = set(re.findall(r"`(flintlog-[a-z-]+)", text))
    assert len(made) >= 9
    assert {name.rstrip("-") for name in made} == {name.rstrip("-") for name in named}


def test_every_room_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert [room for room in rooms if f"| `{room}` |" not in text] == []


def test_every_task_of_the_benchmark_is_explained() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert [task.name for task in TASKS if f"`{task.name}`" not in text] == []


def test_locks_that_are_named_are_locks() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Locks")[2].partition("\n## ")[0]
    sources = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    names = set(re.findall(r"`(_[a-z]+)`", text))
    assert {"_closing", "_running", "_flushing", "_gate"} <= names
    assert [name for name in sorted(names) if f"self.{name} = threading.Lock()" not in sources] == []


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_gives(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    # Not compared in the assertion: a difference of two long pages says less than what to do about it.
    is_up_to_date = written == PAGES[name]()
    assert is_up_to_date, f"docs/reference/{name} is old: run `make docs` (or python -m scripts.reference), commit it"


def test_the_reference_has_no_other_pages() -> None:
    assert {path.name for path in (ROOT / "docs" / "reference").iterdir()} == set(PAGES)


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield below.command_path, command
        if isinstance(command, click.Group):
            yield from _commands(command, below)


def test_every_command_and_option_says_what_it_is_for() -> None:
    page = PAGES["commands.md"]()
    commands = dict(_commands(root, click.Context(root, info_name="flintlog")))
    assert {"flintlog verify", "flintlog pipeline rebuild", "flintlog offsets reset"} <= set(commands)
    assert [path for path in commands if f"# {path}\n" not in page] == []
    silent = [
        f"{path} {option.opts[0]}"
        for path, command in commands.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert silent == [], "give these options a `help`"


def test_the_drawing_of_the_rooms_is_what_the_code_gives() -> None:
    is_up_to_date = rooms.PICTURE.read_text("utf-8") == rooms.render()
    assert is_up_to_date, "docs/images/rooms.svg is old: run `make docs` (or python -m scripts.rooms), and commit it"


def test_folders_and_files_that_contributing_names_exist() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ") and " | " in line]
    folders = [name for row in rows for name in re.findall(r"`([a-z_]+(?:/[a-z_.]+)*)`", row[1]) if "src/" not in name]
    assert len(folders) > 30
    assert [name for name in folders if not any(PACKAGE.rglob(name))] == []
    answers = [row[1] for row in rows if row[0].endswith("?")]
    assert len(answers) == 5
    assert [answer for answer in answers if not re.match(r"`src/flintlog/[a-z_/]+\.py`", answer)] == []
    files = re.findall(r"`(src/flintlog/[a-z_/]+\.py)`", "\n".join(answers))
    assert [name for name in files if not (ROOT / name).exists()] == []
