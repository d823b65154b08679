"""Answers from an open store: by queue, key, time, message id and physical offset."""
