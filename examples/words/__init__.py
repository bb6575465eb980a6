"""Words: tables, and the three aggregations."""
