"""Describe data sets by contracts, download and verify them, and pack them into shards."""
