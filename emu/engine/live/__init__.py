"""A run that goes on: control socket, changes, stepping."""
