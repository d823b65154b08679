"""DLedger's data and index files as a log, for a store that is a member of a group."""
