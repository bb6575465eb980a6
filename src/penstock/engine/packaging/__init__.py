"""Sending an application to workers, and failures back to the driver."""
