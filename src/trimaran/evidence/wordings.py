"""Earlier wordings of recipes that were another experiment: `site/wordings.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from trimaran import paths, strict
from trimaran.strict import Sha256

FILE = "site/wordings.yaml"


class Wordings(strict.Model):
    """The whole file: recipe -> SHA-256 of its file then -> what differed."""

    schema_: Literal[1] = Field(alias="schema")
    other: dict[str, dict[Sha256, Annotated[str, Field(min_length=1)]]]


def other() -> Mapping[str, Mapping[str, str]]:
    """Return what the checkout says of earlier wordings; nothing where it has no such file.

    Raises:
        UsageError: the file does not validate.
    """
    path = paths.repository() / FILE
    return strict.load(Wordings, path).other if path.is_file() else {}
