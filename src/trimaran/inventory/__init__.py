"""Inspect this machine: the definitions of the checkout, the cache, and faults of the machine.

Nothing is changed, except that `cache prune` removes files.
"""
