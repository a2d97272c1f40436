"""Commands of this door."""
