"""The scenario."""
