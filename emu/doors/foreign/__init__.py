"""Files of other programs that become scenarios."""
