"""Time, background jobs, the life cycle of a store, and the notes that it keeps beside RocketMQ's files."""
