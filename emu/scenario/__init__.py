"""What is run: the schema, loading with file and line, overrides, and what a scenario means on its fabric."""
