"""Checks of the files in `deploy/`, without a container runtime or a cluster."""
