"""Ray workers: session, coordinator, worker groups, and the sockets between them."""
