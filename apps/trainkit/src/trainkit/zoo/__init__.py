"""Rates of a list of networks, compared in one table: the command `benchmark` of image apps."""
