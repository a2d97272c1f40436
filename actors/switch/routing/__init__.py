"""Routing policies: the hooks, hash functions, equal-cost groups, and one file for each policy."""
