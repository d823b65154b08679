"""DLedger as a state machine without I/O: `core.step(event, now_ms)` returns what to send, store and apply."""
