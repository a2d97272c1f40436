"""One reliable connection: its state machine, requester, responder and READs."""
