"""The command `benchmark` of image apps, which compares the speed of networks in one table."""
