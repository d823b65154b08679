"""Rows become messages of a store: the write side of `format("flintlog")`."""
