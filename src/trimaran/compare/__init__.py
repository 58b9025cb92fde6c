"""Compare runs and evidence files: find differences, and decide whether they exceed the noise.

`comparison` groups and judges the runs with the statistics of `noise`. `result` defines the result,
which `explain` shows.
"""
