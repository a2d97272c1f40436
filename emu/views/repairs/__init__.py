"""Runs in which a suspect is repaired, and what that says of its part in the time."""
