"""Messages that are delivered at a chosen moment: RocketMQ's timer wheel and timer log."""
