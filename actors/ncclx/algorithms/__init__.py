"""Algorithms of the collective library, one file each; see `actors.ncclx.graph` for what they are made of."""
