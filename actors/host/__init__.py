"""The host: CPU proxies that run programs, and the plain flows that perftest would post."""
