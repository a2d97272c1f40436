"""Devices of the control plane: the controller that takes jobs from operation to operation."""
