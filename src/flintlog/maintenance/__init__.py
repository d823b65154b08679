"""Work on a store directory that no process has open: inspect it, verify it, repair it, back it up."""
