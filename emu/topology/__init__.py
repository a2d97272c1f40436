"""Graphs of GPUs, hosts, NICs and switches; their generators, addresses and equal-cost groups."""
