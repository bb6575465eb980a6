"""Anomaly detector: readings of sensors are compared with what is expected of each sensor."""
