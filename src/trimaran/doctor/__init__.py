"""Check whether a machine can run a recipe: collect facts of each node, and report findings."""
