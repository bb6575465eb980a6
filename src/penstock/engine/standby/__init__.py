"""Standby instances: warm-up, and replicas that follow the changelogs."""
