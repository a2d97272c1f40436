"""What a run will cost, known before it."""
