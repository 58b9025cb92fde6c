"""Runs on clusters: submit them to the batch system of the site, watch them, and resume them.

The script of a job is rendered from the same exact command as a run on this machine. On the nodes
it needs Apptainer and sh, but no Python.
"""
