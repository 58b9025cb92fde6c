"""Run deep-learning recipes on HPC systems, and judge the results."""

__version__ = "0.1.0"
