"""Where Debian is: the mirror that answers near by, and the one that forgets nothing."""

DEBIAN = "http://deb.debian.org"
SNAPSHOT = "https://snapshot.debian.org/archive"
"""Below both is a folder for each archive (`debian`, `debian-security`)."""
