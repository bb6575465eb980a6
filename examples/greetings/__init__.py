"""Greetings: filters and changes records one by one."""
