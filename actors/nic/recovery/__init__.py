"""Loss recovery of queue pairs: the hooks, and one file for each scheme."""
