"""`AdminClient`, and the types of its arguments and results."""
