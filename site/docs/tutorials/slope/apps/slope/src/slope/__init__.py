"""The app of the tutorial, which fits a straight line to points."""
