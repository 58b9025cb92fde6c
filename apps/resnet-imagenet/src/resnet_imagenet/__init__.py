"""Reference training of ResNets: `python -m resnet_imagenet train|evaluate|predict --help`."""

__version__ = "0.1.0"
