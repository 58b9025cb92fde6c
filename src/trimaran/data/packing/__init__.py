"""From pictures in a folder, an archive or IDX files to verified shards."""
