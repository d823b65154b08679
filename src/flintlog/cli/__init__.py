"""The program `flintlog`: one module for each command, and what all commands share."""
