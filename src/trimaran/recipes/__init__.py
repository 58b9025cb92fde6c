"""Recipes, targets, app cards and app options: their models, files and checks.

Nothing in this package creates files or starts programs."""
