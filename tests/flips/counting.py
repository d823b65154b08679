"""How many flipped bits were found: `counts.json`, and the table of it in `docs/mending.md`.

python -m tests.flips.counting                     flip every bit, write the counts and the table
python -m tests.flips.counting plain-clean …       the same for some scenes
python -m tests.flips.counting --table             write only the table
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.flips.flipping import Tally, flip_every_bit
from tests.flips.harmless import reason_for
from tests.flips.scenes import KINDS, SEALED, scene_name

COUNTS = Path(__file__).with_name("counts.json")
DOCS = Path(__file__).parents[2] / "docs" / "mending.md"
HEAD = "| file | bits flipped | found by `verify` | not found, because |\n|---|---|---|---|\n"

Counts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""By kind of file, part of it, and outcome."""


def complaints(kind: str, tally: Tally, *, is_clean: bool) -> list[str]:
    """The outcomes of a scene that must not be."""
    unseen = [
        f"{file}: {part}: not found, and no reason says why that is harmless: {list(map(str, bits[:8]))}"
        for (file, part), bits in tally.unseen.items()
        if reason_for(kind, file, part, is_clean=is_clean) is None
    ]
    problems = [
        f"{outcome.bit} ({outcome.region.kind}: {outcome.region.part}): {problem}"
        for outcome in tally.problems
        for problem in outcome.problems
    ]
    return unseen + problems


def counts_of(tally: Tally) -> Counts:
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for (file, part, result), number in sorted(tally.counts.items()):
        counts.setdefault(file, {}).setdefault(part, {})[result] = number
    return counts


def load_counts() -> dict[str, Counts]:
    """By the name of the scene."""
    found: dict[str, Counts] = json.loads(COUNTS.read_text(encoding="utf-8"))
    return found


def rows(counts: Mapping[str, Counts]) -> Iterator[tuple[str, int, int, str]]:
    """One line for each kind of file: bits, found, why the others were not."""
    totals, found, reasons = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    for kind in KINDS:
        for is_clean in (True, False):
            for file, parts in counts.get(scene_name(kind, is_clean), {}).items():
                name = f"{file}, sealed" if kind == SEALED else file
                mine = reasons.setdefault(name, Counter())
                for part, results in parts.items():
                    totals[name] += sum(results.values())
                    found[name] += results.get("found", 0)
                    reason = reason_for(kind, file, part, is_clean=is_clean) or "NO REASON"
                    mine[reason] += sum(number for result, number in results.items() if result != "found")
    for name in sorted(totals):
        why = "; ".join(f"{reason} ({number})" for reason, number in reasons[name].most_common() if number)
        yield name, totals[name], found[name], why


def docs_with_table(text: str, counts: Mapping[str, Counts]) -> str:
    """The page with the table of these counts in the place of the one that it has."""
    before, after = text.split(HEAD)
    rest = after[after.index("\n\n") + 1 :]
    return before + HEAD + "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows(counts)) + rest


def _count(name: str, kind: str, *, is_clean: bool) -> None:
    """Flip every bit of a scene and write what came of it; other scenes may be counted at the same time."""
    begin = time.monotonic()
    tally = flip_every_bit(kind, is_clean=is_clean)
    seconds = time.monotonic() - begin
    wrong = complaints(kind, tally, is_clean=is_clean)
    sys.stderr.write(f"{name}: {sum(tally.counts.values())} bits, {seconds:.0f} s, {len(wrong)} complaints\n")
    sys.stderr.writelines(f"  {line}\n" for line in wrong)
    counts = load_counts() if COUNTS.exists() else {}
    counts[name] = counts_of(tally)
    COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    for kind in KINDS:
        for is_clean in (True, False):
            name = scene_name(kind, is_clean)
            if not names or name in names:
                _count(name, kind, is_clean=is_clean)
    DOCS.write_text(docs_with_table(DOCS.read_text(encoding="utf-8"), load_counts()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
