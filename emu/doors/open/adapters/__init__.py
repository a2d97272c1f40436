"""Adapters: small interfaces of other programs on an open run, to copy and change."""
