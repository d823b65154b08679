"""Transactions: messages that consumers see once their producer commits them."""
