"""What every room of the tool may import: errors, units, spelling, packaged files."""
