"""Runs: request, prepared image and data, exact command, run directory, resumption."""
