"""Load and check recipes, targets, app cards and app options.

Nothing in this package creates files or starts programs."""
