"""Run seeds: `python -m tests.replication.ledger_simulation SEED [--until SEED] [--without RULE]... [--trace]`."""

from __future__ import annotations

import argparse
import sys

from tests.replication.ledger_simulation.invariants import Violation
from tests.replication.ledger_simulation.schedule import RULES, SECOND_LINE, Run, command


def main() -> int:
    parser = argparse.ArgumentParser(prog="ledger_simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("--until", type=int, help="run all seeds below this one, and name those that fail")
    rules = (*RULES, SECOND_LINE)
    parser.add_argument("--without", action="append", default=[], choices=rules, help="switch a safety rule off")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    arguments = parser.parse_args()
    without = tuple(arguments.without)
    failures = 0
    for seed in range(arguments.seed, arguments.until or arguments.seed + 1):
        run = Run(seed, without, [] if arguments.trace else None)
        try:
            run.simulate()
        except Violation as violation:
            failures += 1
            sys.stdout.write("\n".join(run.trace or ()) + f"\n{command(seed, without)}\n    {violation}\n")
        else:
            sys.stdout.write("\n".join(run.trace or ()))
    sys.stdout.write(f"{failures} failed\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
