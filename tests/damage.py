"""Damage files in the ways that `WAYS` lists, such as by truncation or a flipped bit."""

from __future__ import annotations

from pathlib import Path

WAYS = ("cut", "flipped", "emptied", "link", "folder", "removed")


def spoil(file: Path, how: str) -> None:
    """Damage `file` in the way `how`, one of `WAYS`.

    The way `link` makes it a dangling link, and `flipped` inverts one bit.
    """
    content = file.read_bytes()
    middle = len(content) // 2
    if how == "cut":
        file.write_bytes(content[:middle])
    elif how == "flipped":
        file.write_bytes(
            content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:]
        )
    elif how == "emptied":
        file.write_bytes(b"")
    else:
        file.unlink()
        if how == "link":
            file.symlink_to("nowhere")
        elif how == "folder":
            file.mkdir()
