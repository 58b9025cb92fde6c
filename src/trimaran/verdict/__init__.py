"""Determine the verdict of a run: compare its files with each other, then judge its metrics."""
