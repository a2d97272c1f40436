"""Flow level: a scenario answered by rates of flows instead of packets."""
