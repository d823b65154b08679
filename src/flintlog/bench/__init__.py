"""Measures flintlog on this machine, beside the real Java store and other ways to keep messages.

    tasks.py       the tasks, and the values that a measurement gives
    ours.py        flintlog, through its public methods
    java.py        the RocketMQ store, in a JVM of its own
    peers.py       SQLite, RocksDB, LMDB, and a file with group commit by hand
    run.py         takes turns: a fresh directory each, ours and theirs next to each other
    report.py      the table, and everything as JSON
    pipeline.py    the jobs on Spark, beside the same work in one process

A figure is comparable only with one that was taken in the same minutes on the same machine. So all contenders take
turns, and the report carries the load average.
"""
