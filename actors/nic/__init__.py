"""The RDMA NIC: queue pairs, segmentation, acknowledgement, loss recovery, the egress arbiter."""
