"""DLedger: a commit log that a majority of nodes holds, with an elected leader."""
