"""One end of a link: transmission, PFC, credits, bit errors, added delay, taps, counters, faults."""
