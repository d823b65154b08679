"""The message store: one directory, opened by one process.

`store.py` is the face, `engine.py` opens, runs and stops it, `components.py` makes its parts, `paths.py` names its
files. Everything else is in folders by subject. Each folder imports only those before it in `tests/test_rooms.py`.
"""
