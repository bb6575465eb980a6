"""The application laid out on a log: execution graph, internal topics, upgrade check."""
