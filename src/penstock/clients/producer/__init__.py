"""`Producer`: buffering, partitioning, sending and transactions."""
