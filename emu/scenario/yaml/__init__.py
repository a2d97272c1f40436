"""A file becomes a tree of values with their lines, and a mistake becomes one line."""
