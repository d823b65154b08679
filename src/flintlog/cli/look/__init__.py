"""Commands that only look: info, ls, cat, get, dump, stats, offsets, diff, forecast."""
