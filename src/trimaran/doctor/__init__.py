"""Compare a machine with what a recipe needs: facts of each node, checks, and findings."""
