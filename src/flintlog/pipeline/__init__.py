"""The data pipeline on Spark: a source and a sink for stores, and jobs over their logs."""
