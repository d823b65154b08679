"""Parts that several jobs share, or that one job would be too long with. The jobs themselves are the modules above."""
