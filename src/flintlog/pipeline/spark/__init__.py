"""Running plain functions on Spark: tasks with progress, plain errors, the worker daemon."""
