"""Benchmarks that run from a clone of the project."""
