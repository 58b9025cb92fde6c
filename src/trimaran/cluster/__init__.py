"""Runs on clusters: given to the site's own batch system, watched, and gone on with.

The script of a job is pure text, made from the same exact command as a run on this machine. It
needs Apptainer and sh on the nodes, and no Python.
"""
