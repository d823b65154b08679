"""Services on top of a store: delay levels, timer, transactions, retries.

Services put and read through the store's own methods; each has a folder.
"""
