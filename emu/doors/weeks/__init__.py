"""Weeks of a training run: failures, detection, restarts, checkpoints, and the goodput that is left."""
