"""Consume queues of every kind: where the messages of one queue lie in the log.

A queue's entries follow from the log. `queue_table.py` knows all queues and the next offset of each.
"""
