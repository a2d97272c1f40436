"""The metrics page of a process, its server, and what it reads."""
