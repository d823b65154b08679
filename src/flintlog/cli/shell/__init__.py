"""`flintlog shell`: a few words on one store, line by line."""
