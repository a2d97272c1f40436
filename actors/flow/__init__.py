"""Flow level: at which rates transfers share links, without their packets."""
