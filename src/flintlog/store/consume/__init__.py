"""Consumers inside the process: fetched messages, acknowledgements, committed offsets."""
