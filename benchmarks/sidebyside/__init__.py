"""Runs contestants alternately and compares them; only the standard library is needed.

`python` of the environment under test runs it, so it works inside the images too.
"""
