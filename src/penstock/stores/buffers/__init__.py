"""The changelogged buffers behind `suppress` and stream-table joins with grace."""
