"""The machinery that runs the devices: window protocol, partitions, workers, sockets, coordinator."""
