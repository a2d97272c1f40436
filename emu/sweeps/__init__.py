"""Sweeps: many runs of one file with some values changed, wherever there is room, and one table of them."""
