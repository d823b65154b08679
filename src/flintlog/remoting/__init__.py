"""RocketMQ's remoting: frames, and a client and a server shell around them."""
