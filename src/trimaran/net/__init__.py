"""HTTP requests with limits, resumable transfers, verified downloads, and addresses of mirrors."""

DEBIAN = "http://deb.debian.org"
SNAPSHOT = "https://snapshot.debian.org/archive"
"""Addresses of Debian's mirrors, and of the server with all old versions of Debian's packages.

Both addresses have a folder for each Debian archive, such as `debian`.
"""
