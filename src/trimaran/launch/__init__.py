"""Render the launch specification of a run as an argument list, shell source or JSON.

A specification stays structured until it is rendered. No code parses the text of a command: it
uses the specification instead.
"""
