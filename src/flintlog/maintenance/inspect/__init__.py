"""Reads a store directory in any state, without opening the store. Nothing here changes a file."""
