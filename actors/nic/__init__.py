"""The RDMA NIC: queue pairs, segmentation, acknowledgement and retransmission, the egress arbiter."""
