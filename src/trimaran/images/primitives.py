"""hpccm's primitives, guarded: what hpccm would ignore or only log is an error here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    # hpccm's sources have escape sequences that newer Pythons warn of.
    warnings.simplefilter("ignore")
    import hpccm.config
    from hpccm import primitives

# hpccm takes `**kwargs` and ignores what it does not know, so a misspelt argument
# would vanish in silence: only these primitives are used, with these arguments.
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
    """Return hpccm's primitive `kind`, refusing any argument that it would ignore."""
    if kind not in _ALLOWED:
        raise ValueError(f"hpccm primitive '{kind}' is not used here ({', '.join(_ALLOWED)})")
    unknown = set(arguments) - _ALLOWED[kind]
    if unknown:
        raise ValueError(f"hpccm {kind}: unknown arguments {', '.join(sorted(unknown))}")
    if kind == "comment":
        return primitives.comment(arguments.pop("text"), **arguments)
    return getattr(primitives, kind)(**arguments)


@contextmanager
def container_format(name: str) -> Iterator[None]:
    """Set hpccm's global format, and make its warnings errors: they mean lost content."""
    before = hpccm.config.g_ctype
    hpccm.config.set_container_format(name)
    hpccm.config.set_singularity_version("3.2")  # the first with stages
    logger = logging.getLogger()
    refusal = _Refusal()
    logger.addHandler(refusal)
    try:
        yield
    finally:
        logger.removeHandler(refusal)
        hpccm.config.g_ctype = before


class _Refusal(logging.Handler):
    """Raises on what hpccm only logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise instead of writing."""
        if record.levelno >= logging.WARNING:
            raise ValueError(f"hpccm: {record.getMessage()}")
