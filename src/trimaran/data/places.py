"""Where a data set lies in the cache, in each of its formats, and the command that gets it there.

The format that the contract says lies in `packed`, another one beside it in `packed-FORMAT`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from shards.kinds import FormatName
from trimaran import paths
from trimaran.data.contracts import AnyContract, Licensed


def getting(contract: AnyContract, form: FormatName) -> str:
    """Return the whole command that gets a data set in a format; DIR is the reader's own."""
    words = ["trimaran data get", contract.name]
    words += [] if form == contract.own_format else ["--format", form]
    words += ["--from DIR"] if isinstance(contract, Licensed) else []
    return " ".join(words)


@dataclass(frozen=True)
class Place:
    """A data set in one format."""

    contract: AnyContract
    form: FormatName

    @classmethod
    def of(cls, contract: AnyContract, form: FormatName | None) -> Place:
        """Return the place of a format; None: of the contract's own."""
        return cls(contract, form or contract.own_format)

    @classmethod
    def every(cls, contract: AnyContract) -> list[Place]:
        """Return the places of all formats, the contract's own first."""
        forms: tuple[FormatName, ...] = get_args(FormatName)
        own = contract.own_format
        return [cls(contract, form) for form in sorted(forms, key=lambda form: form != own)]

    @property
    def home(self) -> Path:
        """The folder of the data set in all formats."""
        return paths.cache("data", self.contract.name)

    @property
    def packed(self) -> Path:
        """The shards, whether or not they are there."""
        return self.home / f"packed{self._suffix}"

    @property
    def damaged(self) -> Path:
        """Left by `verify` when it found something, so that the next `get` looks as thoroughly."""
        return self.home / f".damaged{self._suffix}"

    @property
    def replaced(self) -> Path:
        """The packed set with a fault, kept until the new one is whole."""
        return self.home / f"replaced{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "" if self.form == self.contract.own_format else f"-{self.form}"
