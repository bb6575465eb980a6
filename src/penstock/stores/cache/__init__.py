"""The record cache: one byte budget per task, flushed at each commit."""
