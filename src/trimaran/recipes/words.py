"""The pattern of names in definitions, such as names of options, metrics and verbs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
