"""Reader `licensed-text`: pack a text that users download themselves."""

from __future__ import annotations

from typing import Literal

from trimaran.data.contracts import Licensed
from trimaran.data.packing.text_reader import OfText


class LicensedText(OfText, Licensed):
    """The data contract of a text that users download themselves."""

    reader: Literal["licensed-text"]

    @property
    def why_not(self) -> str:
        """The reason why Trimaran does not download the files, as part of a sentence."""
        return f"its contract has no checksums of its files; its licence is {self.licence.id}"


MODEL = LicensedText
