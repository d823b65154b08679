"""Commands that run something: put, serve, replica, bench, doctor."""
