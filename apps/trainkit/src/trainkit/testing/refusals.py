"""Check the class and the code of an error, and the values that its message must contain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainkit.exits import AppError


@contextmanager
def refused(
    kind: type[AppError], code: str, *named: object
) -> Iterator[pytest.ExceptionInfo[AppError]]:
    """Expect an error in the `with` block: of `kind`, with `code`, naming each of `named`.

    Args:
        kind: class of the error, which determines the exit code of the app.
        code: the code of the error; the apps of this repository use the keys of
            `trainkit.error_codes.CODES`.
        named: values that the message must contain, such as a path or a number, but no sentences.
    """
    with pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert caught.value.code == code, message
    for thing in named:
        assert str(thing) in message


def assert_reported(output: str, code: str, *named: object) -> None:
    """Check that `output` of an app contains an error with `code` that names each of `named`."""
    _, error, message = output.partition(f"error[{code}]: ")
    assert error, output
    for thing in named:
        assert str(thing) in message
