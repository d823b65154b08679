"""Which files are deleted, which are kept, and why."""
