"""The launch specification of a run, and its rendering as argument list, shell source or JSON.

A specification stays structured until it is rendered. No code parses the text of a command; it
reads the specification instead.
"""
