"""The commit log: one append-only sequence of records, the only truth of a store.

Appends happen under one put lock. Everything else in the directory can be derived from the log again.
"""
