"""The orders application: counts, revenue, windows and store addresses of a retail chain."""
