"""HTTP requests with limits, resumable transfers, and verified downloads."""
