"""Channels, ends of connections, clear-to-send, posting to queue pairs, and the wiring between ranks."""
