"""The operators, one module per family, and the Processor API (`api`)."""
