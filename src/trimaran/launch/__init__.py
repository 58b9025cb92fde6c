"""One launch specification of a run, and its renderings: argument list, shell source, JSON.

A specification stays structured until something renders it. Nothing reads a command back from its
text: what a later step needs to know of a command, it asks the specification.
"""
