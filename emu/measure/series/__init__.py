"""Every series: its declaration, its readings, and its changes over time."""
