"""`flintlog pipeline …`: one module for each job that runs on Spark."""
