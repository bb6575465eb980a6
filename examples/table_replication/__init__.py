"""Table replication: change events become a table in SQLite or PostgreSQL, exactly once."""
