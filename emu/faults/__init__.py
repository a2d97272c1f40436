"""What breaks: faults as data, and what they mean for each link over time."""
