"""Inspect this machine: definitions of the checkout, contents of the cache, and faults.

Nothing is changed, except that `cache prune` removes files.
"""
