"""Runs that other programs drive: the server, its client, adapters."""
