"""`summary.json`: its schema, and how the results of a run become it."""
