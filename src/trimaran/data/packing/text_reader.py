"""Reader `text`: pack the documents of a text into tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from shards.kinds import DocumentRule, FormatName, Kind
from trimaran.data.contracts import Common, Contract, Name, Percent, Size, Split
from trimaran.data.packing import shares, tokenizing
from trimaran.data.packing.documents import Encoding, Text, is_text
from trimaran.data.packing.tokenizing import Choice


class TextSplit(Split):
    """A split with the documents whose hash modulo 100 is in the range `percent`.

    Attributes:
        samples: number of documents; None if it is not known.
        percent: begin and end of the range; the end is not included.
    """

    samples: Size | None = None
    percent: tuple[Percent, Percent]


class OfText(Common):
    """A data contract whose samples are the documents of a text corpus.

    Attributes:
        documents: the rule by which the files are divided into documents.
        encoding: encoding of the files.
        tokenizer: `bytes`, `bpe:SIZE`, or the name of a file of the contract.
        splits: the splits; their ranges cover all documents.
    """

    kind: ClassVar[Kind] = Kind(labels="none", sample="text")

    documents: DocumentRule
    encoding: Encoding = "utf-8"
    tokenizer: Annotated[str, Field(pattern=r"^(bytes|bpe:[0-9]+|[A-Za-z0-9._+-]+\.json)$")]
    splits: dict[Name, TextSplit] = Field(min_length=1)

    @property
    def classes(self) -> list[str]:
        """An empty list: documents have no classes."""
        return []

    @property
    def own_format(self) -> FormatName:
        """The format `tokens`, the only format for texts."""
        return "tokens"

    @property
    def wanted(self) -> Mapping[str, int | None]:
        """The required number of documents of each split; None if a split may have any number."""
        return {name: split.samples for name, split in self.splits.items()}

    @model_validator(mode="after")
    def _covered(self) -> OfText:
        shares.check(self._shares)
        listed: Mapping[str, object] = getattr(self, "files", {})  # a field of the subclasses
        if self.tokenizer.endswith(".json") and self.tokenizer not in listed:
            raise ValueError(f"tokenizer: {self.tokenizer} is not in 'files'")
        return self

    @property
    def _shares(self) -> shares.Shares:
        return {name: split.percent for name, split in self.splits.items()}

    def text(self, folder: Path, files: Iterable[str], contents: dict[str, str]) -> Text:
        """Return the text that the files in `folder` contain.

        Args:
            folder: folder of the files of the contract.
            files: names of these files. Files without documents, such as a tokenizer, are left out.
            contents: name of a file -> its SHA-256 in the contract, which `dataset.json` records.
        """
        names = sorted(name for name in files if is_text(name, self.documents))
        return Text(folder, names, self.documents, self._shares, self.encoding, contents)

    def choice(self, folder: Path) -> Choice:
        """Return the tokenizer that the contract names; a tokenizer file is read from `folder`."""
        return tokenizing.choice(self.tokenizer, folder)


class DownloadedText(OfText, Contract):
    """The data contract of a text that Trimaran downloads."""

    reader: Literal["text"]


MODEL = DownloadedText
