"""Compare runs and evidence files: find differences, and decide whether they exceed the noise.

The module `comparison` groups the runs, and judges their differences with the statistics of the
module `noise`. `result` defines the data of a comparison, and `explain` shows them as text and
HTML.
"""
