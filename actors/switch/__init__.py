"""The switch: routing and hashing, QoS maps, the shared buffer, deep buffers, egress queues."""
