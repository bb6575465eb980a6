"""What the user says: builders, streams, tables, groupings, windows and their options."""
