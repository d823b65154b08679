"""The `config` folder: topics, consumer groups, offsets, subscriptions, with RocketMQ's file formats."""
