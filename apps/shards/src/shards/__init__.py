"""Packed data sets, as the tool writes and checks them and a training reads them."""

__version__ = "0.1.0"
