"""Replicas: a task's rows on this host, at known changelog positions."""
