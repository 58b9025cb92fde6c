"""Render pages as HTML and Markdown. An HTML page is one file that loads nothing else.

Text from recipes, apps and hosts is escaped, so that it cannot act as markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import timedelta
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from trimaran.terminal_safety import visible

LONGEST = 1e10
"""Upper limit of plausible times in seconds (about 317 years).

A longer time must be a wrong value. It is shown in seconds, not in hours.
"""

STYLES, SCRIPT = ("charts.css", "look.css"), "charts.js"
"""Names of the style sheets and the script, which are part of every page."""


def render(template: str, values: dict[str, Any], package: str = "trimaran.report") -> str:
    """Return the template `template` of `package`, rendered with `values`."""
    return _environment(package).get_template(template).render(values, **_own())


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("trimaran.report")]),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, finalize=_shown,
        autoescape=select_autoescape(["html.j2", "svg.j2"]),
    )
    environment.filters.update(cell=_cell, fenced=_fenced, duration=duration, short=short)
    return environment


def asset(name: str) -> str:
    """Return the text of a style sheet or script."""
    return (resources.files("trimaran.report") / "templates" / name).read_text(encoding="utf-8")


def _own() -> dict[str, Markup | str]:
    """Return style sheet, script, and a content security policy that allows only these two."""
    style, script = "".join(map(asset, STYLES)), asset(SCRIPT)
    return {
        "style": Markup(style), "script": Markup(script),  # noqa: S704 - our own files
        "policy": f"default-src 'none'; style-src 'sha256-{_hash(style)}';"
                  f" script-src 'sha256-{_hash(script)}'; img-src data:",
    }


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _shown(value: object) -> object:
    """Return a value with control characters escaped, such as those that reverse text."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def duration(seconds: float) -> str:
    """Return a time in the usual notation: `8:26:05`, `26 min 5 s`, `5.2 s`."""
    if not seconds < LONGEST:
        return f"{seconds:g} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return str(timedelta(seconds=whole))


def short(digest: str | None) -> str:
    """Return the first characters of an image's digest."""
    return "no image" if digest is None else f"{digest[:19]}…"


def _cell(text: object) -> str:
    """Return a text as one line or table cell of Markdown, with all markup escaped."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]<>|~#&])", r"\\\1", line)


def _fenced(text: str) -> str:
    """Return a text as a code block of Markdown, with a fence that the text does not contain."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"
