"""What a store counts, under RocketMQ's names, and how it is shown to Prometheus."""
