"""Logs of fixed-size files: RocketMQ's MappedFile (`segment.py`) and MappedFileQueue (`segment_queue.py`).

A segment's written, committed and flushed positions never pass each other. It imports `disk.media`.
"""
