"""HTTP requests with limits, resumable transfers, verified downloads, and addresses of mirrors."""

DEBIAN = "http://deb.debian.org"
SNAPSHOT = "https://snapshot.debian.org/archive"
"""Debian's mirrors, and its store of all old versions; both have a folder for each archive."""
