"""What all Trimaran apps share: mechanisms only; each app owns its model and its loop."""

__version__ = "0.1.0"
