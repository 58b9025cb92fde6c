"""Submit runs to the batch system of a cluster, watch them, and resume them.

The script of a job is rendered from the same exact command as a run on this machine. The nodes
need Apptainer and sh, but no Python.
"""
