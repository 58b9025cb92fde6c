"""Packed data sets: the code shared by the tool, which writes and checks them, and by trainings."""

__version__ = "0.1.0"
