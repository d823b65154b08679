"""What goes into a store and what comes out: messages, receipts, stored messages. Values only; no state, no files."""
