"""Building queues and index in Spark tasks, for a rebuild and for dispatch outside the store."""
