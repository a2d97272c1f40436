"""Fabrics by name, their generators, and how they are shown in text and SVG."""
