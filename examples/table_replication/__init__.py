"""Table replication: change events of a database become a table in SQLite, exactly once."""
