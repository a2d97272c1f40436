"""The graph of a fabric, its addresses and its equal-cost groups, as devices need them in a run."""
