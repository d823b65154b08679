"""Master and slave, as RocketMQ's default HA service has them. State machines here; sockets only in the shells."""
