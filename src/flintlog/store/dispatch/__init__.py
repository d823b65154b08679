"""From the log to queues and index: each record becomes visible in its queue exactly once, in log order."""
