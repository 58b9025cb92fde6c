"""Trimaran: from recipe to verdict, for deep learning on HPC."""

__version__ = "0.1.0"
