"""Which messages of a queue a reader gets: tags, SQL92, and bloom filters over groups."""
