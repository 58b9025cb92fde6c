"""Reference training of decoder transformers whose weights may be divided over many devices."""

__version__ = "0.1.0"
