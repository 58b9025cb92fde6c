"""Data sets: contracts, downloads, packing into shards, verification and the cache."""
