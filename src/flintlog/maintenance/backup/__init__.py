"""Copies a store while it runs, and restores it whole or up to a point.

Imports the other folders of `maintenance`.
"""
