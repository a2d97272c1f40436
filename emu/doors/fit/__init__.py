"""Knobs of a scenario fitted to measurements of a real cluster: logs of nccl-tests and perftest."""
