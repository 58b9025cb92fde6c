"""Limit the size of files, to simulate a full disk."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Limit the files that this process and its child processes write to `size` bytes.

    No bytecode is written, because Python 3.11 does not detect that a file was truncated at the
    limit, and every later import of the module would fail (python/cpython issue 126606).
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with mock.patch.dict(os.environ, PYTHONDONTWRITEBYTECODE="1"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
