"""Parquet join: a live table of an application, joined in Spark SQL with a Parquet file."""
