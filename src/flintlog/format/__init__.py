"""RocketMQ's byte formats, as values and back. Only the standard library is imported here."""
