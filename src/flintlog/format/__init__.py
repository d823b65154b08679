"""RocketMQ's byte formats: pure functions between bytes and values. It imports only the standard library."""
