"""Lanes: each rank sends to the one that is so many places on."""
