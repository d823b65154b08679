"""Messages, receipts and stored messages. Values only; no state, no files."""
