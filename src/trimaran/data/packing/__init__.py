"""Pack pictures of a folder, an archive or IDX files into shards, and verify the shards."""
