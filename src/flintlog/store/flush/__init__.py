"""Durability, and the puts that wait for it: periodic flush, group commit, replicas, a ledger's majority."""
