"""Addresses of Debian: the mirror network, and the archive of all package versions."""

DEBIAN = "http://deb.debian.org"
SNAPSHOT = "https://snapshot.debian.org/archive"
"""Both contain a folder for each archive (`debian`, `debian-security`)."""
