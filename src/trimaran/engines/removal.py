"""Remove folders in which a container that ran without root created files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trimaran import process

NAMESPACE = ("unshare", "--map-auto", "--map-root-user", "--")
"""Run a program as root of a user namespace with all user ids of the user (util-linux >= 2.38)."""


def remove_folder(folder: Path) -> None:
    """Remove a folder, including the files that belong to subordinate user ids.

    In the user namespace of a build, `tar` and `apt-get` create files of other users than root.
    Outside of the namespace, these files belong to subordinate ids of the user, see subuid(5), and
    the user may not remove them. The build removes them at its end, but not if it was killed.

    Raises:
        OSError: a file cannot be removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder) and shutil.which(NAMESPACE[0]):
        process.run([*NAMESPACE, "rm", "-rf", "--one-file-system", "--", str(folder)])
    if os.path.lexists(folder):
        try:
            shutil.rmtree(folder)
        except PermissionError as error:
            raise PermissionError(
                error.errno, "files of another user remain; if they are of a subordinate id, remove"
                " the folder with `podman unshare rm -r`", str(folder)) from error
