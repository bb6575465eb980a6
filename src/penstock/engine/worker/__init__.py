"""What runs in a worker: one task after the other, from its plan to its outcome."""
