"""Measures flintlog on this machine, beside the real Java store and other ways to keep messages.

    tasks.py       the tasks, and the values that a measurement gives
    ours.py        flintlog, through its public methods (cold.py: in a process of its own)
    peers.py       SQLite, RocksDB, LMDB; raw_file.py: a file with group commit by hand
    run.py         takes turns: a fresh directory each, ours and theirs next to each other
    report.py      the table, and everything as JSON
    services.py    many queues (queues.py), many timers
    pipeline.py    the jobs on Spark, beside the same work in one process; streaming.py: their delay
    replication.py a master with its slave, a ledger group

A figure is comparable only with one that was taken in the same minutes on the same machine. So all contenders take
turns, and the report carries the load average.
"""
