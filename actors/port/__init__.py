"""Ports and links: transmission, PFC, credits, bit errors, added delay, taps, counters, faults."""
