"""Data sets: what a contract demands, how they are got, packed, verified and kept.

`packing` makes shards of samples, `formats` are the forms a shard can have."""
