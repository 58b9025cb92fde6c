"""Pack images, videos and texts into shards: readers of their sources, and writers of shards."""
