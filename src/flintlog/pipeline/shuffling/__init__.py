"""Rebuilding without shared maps: packed rows, whole files, and their place at a URI."""
