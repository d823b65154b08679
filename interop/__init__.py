"""The real RocketMQ store beside ours: Java's processes, and what both are asked. No part of the installed package."""
