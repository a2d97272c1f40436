"""Congestion control of queue pairs: the hooks, and one file for each control."""
