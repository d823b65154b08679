"""Checks a store: from ranges of its log and its derived files to findings.

Checks are pure: they read the bytes that they are given and change nothing. They import `derive`, `format` and
`kernel`, never `disk`. Recovery, `verify` and Spark use the same ones.
"""
