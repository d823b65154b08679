"""What a store must fulfil: from ranges of the log and derived files to findings.

Checks are pure: they read bytes that they are handed and change nothing. They import `derive`, `format` and `kernel`,
never `disk`. Recovery, `verify` and Spark use the same ones.
"""
