"""The folder in which a SIF is built, beside the finished images; deleted after the build."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimaran import locks, paths
from trimaran.errors import BuildError
from trimaran.files import check_space

SCRATCH = "trimaran-build-"


@contextmanager
def workplace(needed: int) -> Iterator[Path]:
    """Yield a folder beside the finished images, and delete it afterwards in every case.

    The folder is on the file system of the finished images, so that the finished SIF only has to
    be renamed. Apptainer unpacks into its link `tmp`, which points to a folder below TMPDIR,
    usually on a local disk.

    Args:
        needed: bytes that unpacking takes.

    Raises:
        BuildError: the space is too small.
    """
    finished = paths.cache("images")
    finished.mkdir(parents=True, exist_ok=True)
    for part in finished.glob("part-*"):
        if locks.left_over(part):  # of a build that was killed
            for folder in folders(part):
                shutil.rmtree(folder, ignore_errors=True)
            locks.path_of(part).unlink(missing_ok=True)
    scratch_root = Path(os.environ.get("APPTAINER_TMPDIR") or tempfile.gettempdir())
    check_space(scratch_root, needed, "unpacking the image", BuildError)
    check_space(finished, needed // 3, "the finished image", BuildError)
    with locks.scratch(finished, "part-") as place:
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=scratch_root))
        try:
            (place / "tmp").symlink_to(scratch)
            yield place
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def folders(place: Path) -> tuple[Path, ...]:
    """Return all folders of the workplace `place`: the one below TMPDIR, and `place` itself."""
    scratch = (place / "tmp").resolve()
    return (scratch, place) if scratch.name.startswith(SCRATCH) else (place,)
