"""What outlives the daemon: a journal on the disk, the lock of the node, and requests to close a breaker."""
