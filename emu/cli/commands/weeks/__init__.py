"""Subcommands on the clock of campaigns: weeks in milliseconds, without packets."""
