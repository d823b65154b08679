"""`StoreConfig`, and how its options are declared, parsed and translated from RocketMQ's names.

A configuration is checked when it is made and never changes. Imports no other folder of the store.
"""
