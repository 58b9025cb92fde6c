"""Packed data sets: code shared by the tool, which writes and checks them, and by the apps."""

__version__ = "0.1.0"
