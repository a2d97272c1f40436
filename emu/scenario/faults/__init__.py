"""Section `faults`: what breaks, when and where, and the events that it becomes."""
