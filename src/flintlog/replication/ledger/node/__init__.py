"""Sockets, files and a clock around the state machine of `replication.ledger.core`."""
