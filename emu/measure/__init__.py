"""Counters and their names, samples, digests, results: what a run tells about itself, and to whom."""
