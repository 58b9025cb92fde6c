"""Stock programs and ceilings, each a process of its own: `python -m baselines.NAME --help`."""
