"""Compare a machine with the needs of a recipe: facts of each node, checks, and findings."""
