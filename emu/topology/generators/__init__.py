"""The fabrics that can be generated, one file for each kind."""
