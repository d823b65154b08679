"""`flintlog top`: a live view of a store that another process writes."""
