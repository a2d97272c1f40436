"""The event kernel: the total order of events, the clock, random streams, and the base class of devices."""
