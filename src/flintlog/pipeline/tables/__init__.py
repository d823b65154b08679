"""Tables that gain whole batches, each exactly once: Parquet, Delta and Iceberg."""
