"""Call hpccm's primitives; arguments that hpccm ignores, and its warnings, become errors."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    # hpccm's sources have escape sequences for which newer versions of Python print warnings.
    warnings.simplefilter("ignore")
    import hpccm.config
    from hpccm import primitives

# hpccm ignores unknown arguments, so a misspelt argument would have no effect. Therefore only these
# primitives and arguments are allowed.
_ALLOWED: dict[str, frozenset[str]] = {
    "baseimage": frozenset({"image", "_as", "_bootstrap", "_docker_env", "_distro"}),
    "comment": frozenset({"text", "reformat", "_app"}),
    "copy": frozenset({"files", "_from"}),
    "environment": frozenset({"variables", "_export"}),
    "label": frozenset({"metadata"}),
    "raw": frozenset({"docker", "singularity"}),
    "runscript": frozenset({"commands", "_app"}),
    "shell": frozenset({"commands", "_test"}),
}


def primitive(kind: str, **arguments: Any) -> Any:
    """Return hpccm's primitive `kind`.

    Raises:
        ValueError: The primitive or an argument is not in `_ALLOWED`.
    """
    if kind not in _ALLOWED:
        raise ValueError(f"hpccm primitive '{kind}' is not allowed ({', '.join(_ALLOWED)})")
    unknown = set(arguments) - _ALLOWED[kind]
    if unknown:
        raise ValueError(f"hpccm {kind}: unknown arguments {', '.join(sorted(unknown))}")
    if kind == "comment":
        return primitives.comment(arguments.pop("text"), **arguments)
    return getattr(primitives, kind)(**arguments)


@contextmanager
def container_format(name: str) -> Iterator[None]:
    """Set hpccm's global format within the context, and turn its warnings into ValueError.

    hpccm prints a warning when it drops content.
    """
    before = hpccm.config.g_ctype
    hpccm.config.set_container_format(name)
    hpccm.config.set_singularity_version("3.2")  # the first version with build stages
    logger = logging.getLogger()
    refusal = _Refusal()
    logger.addHandler(refusal)
    try:
        yield
    finally:
        logger.removeHandler(refusal)
        hpccm.config.g_ctype = before


class _Refusal(logging.Handler):
    """A logging handler that raises ValueError for warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise ValueError for a warning or an error."""
        if record.levelno >= logging.WARNING:
            raise ValueError(f"hpccm: {record.getMessage()}")
