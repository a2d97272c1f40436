"""Runs on Ray: session, workers, exchange of packets, pages."""
