"""Reference training of decoder transformers whose weights no single device has to hold."""

__version__ = "0.1.0"
