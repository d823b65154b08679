"""`flintlog bench` that can run RocketMQ's own store too: `python -m benchmarks --compare java`, or `make bench`."""

import sys

from benchmarks.java import RealJava
from flintlog.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["bench", *sys.argv[1:]], RealJava()))
