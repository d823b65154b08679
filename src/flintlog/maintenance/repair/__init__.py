"""Plans and applies repairs. Everything that a repair replaces is kept beside the store first.

A repair that leaves more findings, or an intact message at another place, undoes itself.
Imports `maintenance.inspect` and `maintenance.verify`.
"""
