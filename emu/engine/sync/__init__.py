"""Conservative parallel simulation: windows, lookahead, sync points, partitions."""
