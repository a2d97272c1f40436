"""A run that goes on: control socket, orders, pacing, stepping."""
