"""Derived files of a store as rows: the views of the source other than `messages`."""
