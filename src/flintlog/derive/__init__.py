"""Everything that is computed from the log: batches, splits, queue entries, index plans. Pure: it opens no file."""
