"""Dispatch by another process: the store publishes how far its log may be read, and serves what was published."""
