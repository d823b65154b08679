"""Logs as rows: finds the logs that a path names, splits them, and reads a split in a task. Needs no session."""
