"""Stock programs and ceilings, each in its own process: `python -m baselines.NAME --help`."""
