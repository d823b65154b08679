"""A file for `spark-submit` that runs any job, with the arguments of its command.

    python -m flintlog.pipeline.submit --out flintlog_job.py
    spark-submit --master spark://host:7077 flintlog_job.py rebuild /data/store

Master, memory, names and settings are those of `spark-submit`; the job adds only what nobody has set
(`session.py`). The exit code is the command's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import local_path

SCRIPT: Final = '''"""Runs a job of flintlog by spark-submit, with the arguments of `flintlog pipeline`.

spark-submit [OPTIONS OF SPARK] flintlog_job.py rebuild /data/store
"""

import sys

from flintlog.cli.main import run

sys.exit(run(["pipeline", *sys.argv[1:]]))
'''


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the file, or write it."""
    parser = argparse.ArgumentParser("python -m flintlog.pipeline.submit", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", metavar="FILE", help="write it to this file instead of standard output")
    file = parser.parse_args(arguments).out
    if file is None:
        sys.stdout.write(SCRIPT)
    else:
        LocalMedium().replace(local_path(file).absolute(), SCRIPT.encode())


if __name__ == "__main__":
    main()
