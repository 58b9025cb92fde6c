"""From a request to a verdict: prepared image and data, exact command, run directory, report.

What other packages can do comes together in `pipeline`."""
