"""The code of an error and the things that it names, as tests expect them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainkit.exits import AppError


@contextmanager
def refused(
    code: str, *named: object, kind: type[AppError] = AppError
) -> Iterator[pytest.ExceptionInfo[AppError]]:
    """Expect an error of `kind` with `code`, whose message names each of `named`.

    Args:
        code: the code of the error, a key of `trainkit.error_codes.CODES` in the apps here.
        named: what the message must contain, such as a path, an option or a number; no sentence.
        kind: class of the error, which determines the exit code of the app.
    """
    with pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert caught.value.code == code, message
    for thing in named:
        assert str(thing) in message
