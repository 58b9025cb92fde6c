"""Run contestants alternately and compare their rates, with the standard library only.

The Python of the measured environment runs this package, so it also works inside the images.
"""
