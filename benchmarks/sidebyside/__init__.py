"""Run the commands of a benchmark, called contestants, alternately, and compare their rates.

The Python of the measured environment runs this package, also inside the images. Therefore it needs
only the standard library, except for `photographs`.
"""
