"""What a test expects of an error: its code and what it names, not the words of its sentence."""

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

    `named` is what the user gave or must look at: a path, a key, a number; no part of a sentence.
    """
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"[{caught.value.code}] {caught.value.message}"
    for thing in named:
        assert str(thing) in caught.value.message
