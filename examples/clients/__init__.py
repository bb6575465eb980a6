"""Clients: a table-table join of prospects, accounts and enriched accounts."""
