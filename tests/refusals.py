"""Check the code of an error and the values in its message, but not its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trimaran.errors import TrimaranError


@contextmanager
def refused(
    code: str, *named: object, kind: type[TrimaranError] = TrimaranError
) -> Iterator[pytest.ExceptionInfo[TrimaranError]]:
    """Expect an error of `kind` with `code`, whose message names each of `named`.

    `named` has what the user must see, such as a path, a key or a number, but no wording.
    """
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"[{caught.value.code}] {caught.value.message}"
    for thing in named:
        assert str(thing) in caught.value.message
