"""Routing policies: the hooks with equal-cost groups, hashing and pinning; hash functions; other policies."""
