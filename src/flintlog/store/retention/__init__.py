"""What is deleted, what is kept, and why. Files that somebody still needs are held."""
