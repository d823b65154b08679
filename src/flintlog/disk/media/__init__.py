"""Disks: the real one, a read-only overlay, a remote store, and the lock of a directory.

Every file that flintlog opens is opened here. `medium.py` is the interface; only its `sync` makes data durable.
"""
