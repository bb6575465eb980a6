"""Connections to a Kafka cluster: pooled clients, metadata cache, prefetch, errors."""
