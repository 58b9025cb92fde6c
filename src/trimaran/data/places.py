"""The folder of a data set in the cache for each format, and the command that fills it.

The format in the contract has the folder `packed`; every other format has `packed-FORMAT`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from shards.kinds import FormatName
from trimaran import paths
from trimaran.data.contracts import AnyContract, Licensed


def getting(contract: AnyContract, form: FormatName) -> str:
    """Return the command that gets a data set in the format `form`.

    If the data set needs a licence, the user replaces DIR by the folder with its files.
    """
    words = ["trimaran data get", contract.name]
    words += [] if form == contract.own_format else ["--format", form]
    words += ["--from DIR"] if isinstance(contract, Licensed) else []
    return " ".join(words)


@dataclass(frozen=True)
class Place:
    """The folders in the cache of a data set in one format."""

    contract: AnyContract
    form: FormatName

    @classmethod
    def of(cls, contract: AnyContract, form: FormatName | None) -> Place:
        """Return the place of a data set in a format (None: the format in the contract)."""
        return cls(contract, form or contract.own_format)

    @classmethod
    def every(cls, contract: AnyContract) -> list[Place]:
        """Return the places of a data set in every format; that in the contract comes first."""
        forms: tuple[FormatName, ...] = get_args(FormatName)
        own = contract.own_format
        return [cls(contract, form) for form in sorted(forms, key=lambda form: form != own)]

    @property
    def home(self) -> Path:
        """The folder of the data set, common to all formats."""
        return paths.cache("data", self.contract.name)

    @property
    def packed(self) -> Path:
        """The folder of the shards; it need not exist."""
        return self.home / f"packed{self._suffix}"

    @property
    def damaged(self) -> Path:
        """The file in which `verify` lists the faults that it finds.

        If the file exists, the next `get` also checks every record.
        """
        return self.home / f".damaged{self._suffix}"

    @property
    def replaced(self) -> Path:
        """The folder of a damaged packed data set, kept until its replacement is complete."""
        return self.home / f"replaced{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "" if self.form == self.contract.own_format else f"-{self.form}"
