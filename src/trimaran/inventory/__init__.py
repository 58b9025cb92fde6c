"""Inspect this machine: definitions of the checkout, contents of the cache, and its fitness.

Nothing is changed, except that `cache prune` removes files.
"""
