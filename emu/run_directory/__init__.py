"""What a run directory holds, and how it is read back."""
