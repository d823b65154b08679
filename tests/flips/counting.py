"""The table of counts in `docs/mending.md`: `python -m tests.flips.counting` prints it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from flintlog.services.timer.timer_service import TimerService
from tests.flips.flipping import all_bits, flip_all
from tests.flips.harmless import is_torn, reason_for
from tests.flips.scenes import KINDS, TIMER_SLOTS, make_scene

Row = tuple[str, str, str, str]


def count(step: int) -> Counter[tuple[str, str, str, str]]:
    """How often each kind of file, and stop, had which outcome; `step` 1 tries every bit."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for kind in KINDS:
        for is_clean in (True, False):
            scene = make_scene(kind, is_clean=is_clean)
            tally = flip_all(scene, islice(all_bits(scene), 0, None, step))
            sys.stderr.write(f"{scene.name}: {sum(tally.counts.values())} bits\n")
            for (file, part, result), number in tally.counts.items():
                stop = "clean" if is_clean else "killed"
                name = f"{file}, sealed" if scene.is_sealed else file
                reason = "" if result == "found" else (reason_for(scene, file, part) or "NO REASON")
                counts[name, stop, result, reason] += number
            for outcome in tally.problems:
                wrong = [problem for problem in outcome.problems if not is_torn(scene, outcome, problem)]
                sys.stderr.write(f"{outcome.bit}: {wrong}\n" if wrong else "")
    return counts


def rows(counts: Counter[tuple[str, str, str, str]]) -> Iterator[Row]:
    """One line for each kind of file: bits, found, not found and harmless, why."""
    for name in sorted({key[0] for key in counts}):
        mine = {key: number for key, number in counts.items() if key[0] == name}
        found = sum(number for (_, _, result, _), number in mine.items() if result == "found")
        reasons = Counter[str]()
        for (_, _, _, reason), number in mine.items():
            reasons[reason] += number if reason else 0
        why = "; ".join(f"{reason} ({number})" for reason, number in reasons.most_common() if number)
        total = sum(mine.values())
        yield name, str(total), str(found), why


def main() -> None:
    TimerService.wheel_slots = TIMER_SLOTS
    sys.stdout.write("| file | bits flipped | found by `verify` | not found, because |\n|---|---|---|---|\n")
    for row in rows(count(int(sys.argv[1]) if len(sys.argv) > 1 else 1)):
        sys.stdout.write("| " + " | ".join(row) + " |\n")


if __name__ == "__main__":
    main()
