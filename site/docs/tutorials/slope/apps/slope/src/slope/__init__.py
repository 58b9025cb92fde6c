"""A line through points: the app of the tutorial."""
