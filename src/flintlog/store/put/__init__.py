"""How messages get into the log: single puts, batches, puts of services, batches stored whole or not at all."""
