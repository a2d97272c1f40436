"""Captures: frames with real bytes in pcapng."""
