"""The fabrics that can be generated: one file for each published one, one for those of textbooks."""
