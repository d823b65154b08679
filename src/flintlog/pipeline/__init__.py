"""The data pipeline on Spark: a source, and jobs that derive from a log what follows from it."""
