"""Prints the settings of the session that `get_session` starts in this process. Run by `test_session.py`."""

from __future__ import annotations

import json

from flintlog.pipeline.session import get_session

if __name__ == "__main__":
    spark = get_session()
    found = dict(spark.sparkContext.getConf().getAll())
    found["answer"] = str(spark.range(10).count())
    spark.stop()
    print(json.dumps(found))  # noqa: T201
