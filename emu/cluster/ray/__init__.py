"""The Ray cluster that a run lives on: its session, its nodes, and what tells that it is lost."""
