"""HTTP requests with limits, resumable transfers, verified downloads, and addresses of mirrors."""

DEBIAN = "http://deb.debian.org"
SNAPSHOT = "https://snapshot.debian.org/archive"
"""Mirror network and archive of all package versions; both have a folder for each archive."""
