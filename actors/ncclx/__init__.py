"""The collective library: communicators, channels and their buffers, clear-to-send, the ring."""
