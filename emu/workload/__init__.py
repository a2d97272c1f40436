"""What jobs do: ranks and their order, plain flows."""
