"""`AdminClient` and the types it takes and returns."""
