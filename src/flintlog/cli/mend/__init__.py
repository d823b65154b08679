"""Commands that check, change or copy a store: verify, repair, backup, retention, export and import."""
