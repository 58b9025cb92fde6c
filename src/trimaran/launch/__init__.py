"""Render the launch specification of a run as an argument list, shell source or JSON.

A specification stays structured until it is rendered. Code that needs a part of a command reads the
specification; no code parses the text of a command.
"""
