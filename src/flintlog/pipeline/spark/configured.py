"""What somebody has set for the Spark sessions of this process, before there is one.

    spark-submit             its Java process runs, and knows its options and spark-defaults.conf
    any other process        spark-defaults.conf, PYSPARK_SUBMIT_ARGS and MASTER, which Spark reads when Java starts

The builder of a session would replace these by what it is given, so they have to be known before.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from flintlog.disk.media.local import LocalMedium
from flintlog.store.options.config_file import parse_properties_file

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_MAX_BYTES: Final = 1024 * 1024
_OPTIONS: Final[Mapping[str, str]] = {
    "--master": "spark.master",
    "--remote": "spark.remote",
    "--name": "spark.app.name",
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
    "--num-executors": "spark.executor.instances",
}


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process."""
    return _GATEWAY in os.environ


def load_configured() -> dict[str, str]:
    """The settings that somebody has made, by name."""
    if not is_submitted():
        return parse_environment(os.environ, _spark_home())
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # from here on a SparkConf asks Java
    return dict(SparkConf().getAll())


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def parse_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """The settings of the environment and the files that it names, as Spark orders them."""
    asked = list(_submit_options(shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))))
    file = dict(asked).get("--properties-file")
    folder = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    found = {"spark.master": environment["MASTER"]} if environment.get("MASTER") else {}
    found |= _load_defaults(folder / "spark-defaults.conf" if file is None else Path(file))
    for option, value in asked:
        name, sign, setting = value.partition("=") if option == "--conf" else (_OPTIONS.get(option, ""), "=", value)
        if name and sign:
            found[name] = setting
    return found


def _submit_options(words: list[str]) -> Iterator[tuple[str, str]]:
    """The options of spark-submit in an argument list, each with its value.

    >>> list(_submit_options(["--master", "yarn", "-c", "a=1", "--conf=b=2", "--verbose", "pyspark-shell"]))
    [('--master', 'yarn'), ('--conf', 'a=1'), ('--conf', 'b=2')]
    """
    rest = iter(words)
    for word in rest:
        option, sign, value = word.partition("=")
        option = "--conf" if option == "-c" else option
        if option == "--conf" or option == "--properties-file" or option in _OPTIONS:
            yield option, value if sign else next(rest, "")


def _load_defaults(path: Path) -> dict[str, str]:
    medium = LocalMedium()
    if not medium.exists(path):
        return {}
    values = parse_properties_file(medium.read(path, _MAX_BYTES).decode("utf-8"))
    return {name: value for name, value in values.items() if name.startswith("spark.")}
