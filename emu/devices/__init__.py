"""A scenario and its fabric become devices: no Ray, no socket, no clock."""
