"""The sections of a scenario: knobs, units, ranges and defaults."""
