"""Section `expect`: what must be true of the results, and whether it is."""
