"""Proves a store directory, or says what is wrong with it and where. Nothing here changes a file.

Imports `maintenance.inspect` and the room `checks`.
"""
