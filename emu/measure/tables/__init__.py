"""What a run says on the terminal and in tables."""
