"""The switch: routing and hashing, the shared buffer, egress queues."""
