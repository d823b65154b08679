"""A store as a member of a ledger's group: what it shares with the others, and what it does while it leads."""
