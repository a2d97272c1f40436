"""Published figures, and what the same cases come to here."""
