"""The library that all Trimaran apps share; each app has its own network and training loop."""

__version__ = "0.1.0"
