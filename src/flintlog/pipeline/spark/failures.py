"""Turns Spark's errors into one clear error of ours.

Spark wraps an error of a task or of the source in Java's frames and in its own words. An error of flintlog's is found
in that text and raised again; a mistake of the user's becomes Spark's sentence without the plan below it; anything else
becomes `JobFailed` with its first line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from flintlog import errors
from flintlog.errors import FlintlogError, InvalidConfig, JobFailed

_OURS = re.compile(r"flintlog\.errors\.([A-Za-z]+): (.+)")
_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: (?=\S)", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQL_STATE = re.compile(r" ?SQLSTATE: \w+;?")
_MAX_CHARACTERS = 600
_NOT_FOUND = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: flintlog."


@contextmanager
def plain_errors(doing: str) -> Iterator[None]:
    """Wraps calls of Spark; raises plain errors instead of Spark's."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # Spark's logger would also write each failed query's Java frames to standard error.
    logger = logging.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise to_plain(error, doing) from None
    finally:
        logger.disabled = was_disabled


def to_plain(error: Exception, doing: str) -> FlintlogError:
    """The error to raise instead of one of Spark's.

    >>> to_plain(Exception("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: flintlog. Make sure"), "it").what
    'Spark does not find the source flintlog'
    """
    from pyspark.errors import AnalysisException, ParseException

    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        kind = getattr(errors, ours[1], None)
        if isinstance(kind, type) and issubclass(kind, FlintlogError):
            return kind(ours[2].strip()[:_MAX_CHARACTERS])
    if _NOT_FOUND in text:
        return InvalidConfig(
            "Spark does not find the source flintlog", advice="install flintlog in Spark's Python, before Spark starts"
        )
    if isinstance(error, (AnalysisException, ParseException)):
        return InvalidConfig(first_sentence(text))
    return JobFailed(f"{doing} failed: {first_sentence(text)}")


def started_late(error: Exception) -> bool:
    """Whether a process of a Python source did not start within the 10 s that Spark gives it: the machine is too busy.

    >>> started_late(Exception("org.apache.spark.SparkException: Python worker failed to connect back."))
    True
    """
    return "Python worker failed to connect back" in str(error)


def first_sentence(text: str) -> str:
    """Spark's message without its code, its plan and its frames.

    >>> first_sentence("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012" + chr(10) + "== SQL ==")
    'Division by zero.'

    Of an error in Py4J's call, the last cause is used.

    >>> first_sentence("An error occurred while calling o6.getResult." + chr(10) + ": java.io.IOException: no space")
    'no space'
    """
    causes = [*_CAUSE.finditer(text)]
    if text.startswith("An error occurred while calling ") and causes:
        text = text[causes[-1].end() :]
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return _SQL_STATE.sub("", _CONDITION.sub("", line)).strip().rstrip(";")[:_MAX_CHARACTERS]
