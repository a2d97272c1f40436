"""Workloads: section `jobs`, and a file for each kind of what a job does."""
