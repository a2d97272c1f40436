"""Snapshots: where they are kept, when they are taken, and how a run resumes, rolls back or forks."""
