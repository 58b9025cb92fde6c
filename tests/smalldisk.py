"""A limit on the size of files, which stands for a disk that fills up."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process, and of those it starts, grows beyond so many bytes.

    They write no bytecode meanwhile: Python 3.11 cuts such a file off at the limit and does not
    notice, and each later import of that module would fail (python/cpython issue 126606).
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with mock.patch.dict(os.environ, PYTHONDONTWRITEBYTECODE="1"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
