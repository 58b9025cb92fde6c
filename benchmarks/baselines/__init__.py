"""Stock programs and upper bounds, each in its own process: `python -m baselines.NAME --help`."""
