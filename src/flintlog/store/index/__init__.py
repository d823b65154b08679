"""Look-up by key: index files that map a key's hash to places in the log. Derived from the log."""
