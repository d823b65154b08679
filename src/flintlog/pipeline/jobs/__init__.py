"""Parts of jobs. The jobs themselves are modules of `flintlog.pipeline`."""
