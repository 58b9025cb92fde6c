"""Predict the speed of a recipe on a target, for any number of nodes."""
