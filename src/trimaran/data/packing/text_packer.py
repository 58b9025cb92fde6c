"""Pack the documents of a text corpus into shards of tokens.

First, all files are read to count and check the documents; nothing is written yet. Then they are
read to pack the documents in the order of the files. To train a BPE tokenizer, they are read once
more. A note is written for each finished shard, so that an interrupted packing can continue after
the last finished shard.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from shards.description import Dataset, Origin, PackedSplit, Shard, TextFacts
from shards.description import Tokenizer as TokenizerEntry
from shards.formats import tokens
from shards.formats.tokens import Tokens
from shards.kinds import TokenType
from trimaran import files
from trimaran.data.packing import packer, tokenizing, unfinished
from trimaran.data.packing.documents import Text
from trimaran.data.packing.listing import SHOWN, fingerprint
from trimaran.data.packing.plan import Bad, Done, check_name
from trimaran.data.packing.tokenizing import FILE, Choice, Encoder
from trimaran.errors import RunError
from trimaran.reporting import Advance, Reporter

SHARD_TOKENS = 100_000_000
BATCH_BYTES = 1 << 22
"""Size in bytes of the text that is converted to tokens in one step, by all threads together."""


@dataclass(frozen=True)
class Options:
    """The options that, with the text and the tokenizer, determine the bytes of the shards.

    A shard is complete as soon as it has 100,000,000 tokens or `samples` documents; a document is
    never divided.

    Attributes:
        name: name of the data set.
        samples: largest number of documents in a shard; None if only the number of tokens is
            limited.

    Raises:
        UsageError: the name is not allowed in `dataset.json`.
    """

    name: str
    samples: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass
class Survey:
    """The result of counting and checking all documents of a text corpus.

    Attributes:
        documents: split -> number of documents.
        bytes: split -> size of the documents in bytes as UTF-8.
        bad: place and fault of each document that cannot be used.
    """

    documents: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    bad: list[Bad] = field(default_factory=list)


def pack(
    text: Text, folder: Path, options: Options, choice: Choice, *, skip_bad: bool,
    reporter: Reporter, wanted: Mapping[str, int | None] | None = None,
) -> Dataset:
    """Pack `text` into `folder`, and return the description of the packed data set.

    Args:
        text: the files, and how they are divided into documents and splits.
        folder: a new or empty folder, or the folder of an unfinished packing of the same text.
        options: name of the data set and size of the shards.
        choice: the tokenizer.
        skip_bad: leave out documents that cannot be used, and list them in `skipped.txt`.
        reporter: shows progress and warnings.
        wanted: split -> number of documents that it must have; None for any number.

    Raises:
        UsageError: `folder` contains other files, or the file of the tokenizer is not a tokenizer.
        RunError: documents cannot be used, a split is empty or has another number of documents, or
            the disk has too little free space.
        Interrupted: the user pressed Ctrl-C; the same call resumes the packing.
    """
    with files.writing(f"write into {folder}", folder):
        unfinished.refuse_used(folder)  # before the text is read, which may take an hour
    _warn_of_ignored(text, reporter)
    if choice.path is not None:
        Encoder(choice.path.read_bytes(), choice.path)  # report its faults before the text is read
    found = survey(text, reporter)
    _refuse(text, found, wanted, skip_bad)
    with (
        files.resumable(f"packing {folder}"),
        files.writing(f"write into {folder}", folder, hint="run the same command again to resume"),
    ):
        with unfinished.notes(folder, _plan(text, options, choice)) as state:
            encoder = _encoder(text, choice, state, sum(found.bytes.values()), reporter)
            packing = _Packing(folder, encoder, options, found)
            _check_space(state, found, packing.kept, encoder, choice)
            size = sum(found.bytes.values())
            with reporter.bar(f"packing {options.name}", size, unit="B") as advance:
                for batch in _batches(text):
                    packing.add(batch, advance)
                shards = packing.finished()
            if packing.unknown:
                reporter.warn(f"{packing.unknown:,} tokens stand for text that the vocabulary of"
                              f" {choice.path} cannot express: that text is lost")
            dataset = _describe(text, options, choice, encoder, shards, len(found.bad))
            files.write_atomic(folder / FILE, encoder.file)
            packer.complete(folder, dataset, found.bad)
        shutil.rmtree(state)
    return dataset


def survey(text: Text, reporter: Reporter) -> Survey:
    """Count and check all documents of `text`.

    Raises:
        RunError: a file cannot be read.
    """
    found = Survey()
    with reporter.bar(f"reading {text.root}", None, unit="B") as advance:
        for one in text.documents():
            if one.fault is not None:
                found.bad.append((one.place, one.fault))
            else:
                found.documents[one.split] = found.documents.get(one.split, 0) + 1
                found.bytes[one.split] = found.bytes.get(one.split, 0) + len(one.content)
                advance(len(one.content))
    return found


def _check_space(
    state: Path, found: Survey, kept: list[Shard], encoder: Encoder, choice: Choice
) -> None:
    """Raise RunError if the disk has too little space for the shards that are not finished yet.

    `kept` contains the finished shards.
    """
    size = sum(found.bytes.values()) - sum(one.text_bytes or 0 for one in kept)
    documents = sum(found.documents.values()) - sum(one.samples for one in kept)
    # The average token of a BPE stands for more than two bytes.
    count = documents + (size if choice.made == "bytes" else size // 2)
    room = np.dtype(encoder.token).itemsize * count + np.dtype(np.int64).itemsize * documents
    files.check_space(state, room + files.SPARE_BYTES, f"packing into {state.parent}", RunError)


def _warn_of_ignored(text: Text, reporter: Reporter) -> None:
    if text.ignored:
        more = len(text.ignored) - SHOWN
        reporter.warn(
            f"{text.root}: {len(text.ignored):,} files are left out, because they are no text by"
            f" their names: {', '.join(text.ignored[:SHOWN])}{f' and {more:,} more' * (more > 0)}"
        )


def _refuse(
    text: Text, found: Survey, wanted: Mapping[str, int | None] | None, skip_bad: bool
) -> None:
    """Raise RunError if documents cannot be used, or a split is empty or has a wrong size.

    Args:
        text: the text corpus.
        found: the counts and faults of its documents.
        wanted: split -> number of documents in the contract; None for a text without a contract.
            With a contract, the message does not advise `--skip-bad`, because `data get` does not
            have this option.
        skip_bad: accept documents that cannot be used.
    """
    if found.bad and not skip_bad:
        lines = [f"{place} {fault}" for place, fault in found.bad[:SHOWN]]
        lines += [f"and {len(found.bad) - SHOWN:,} more"] if len(found.bad) > SHOWN else []
        option = ", or leave them out: --skip-bad" if wanted is None else ""
        raise RunError("\n".join(lines), code="document-invalid",
                       hint=f"repair or remove these documents{option}")
    for split in text.splits:
        if not found.documents.get(split):
            raise RunError(
                f"{text.root}: the split {split} has no document", code="split-empty",
                hint=f"add documents to {text.root / split}" if text.held_out is None else
                "add documents, divide the files into more of them (--documents), or hold out"
                " another percentage (--held-out)",
            )
    for split, count in (wanted or {}).items():
        if count is not None and found.documents.get(split, 0) != count:
            raise RunError(f"{text.root}: split {split} has {found.documents.get(split, 0):,}"
                           f" documents, not {count:,}", code="data-mismatch")


def _plan(text: Text, options: Options, choice: Choice) -> dict[str, object]:
    """Return all values that determine the content of the shards, as JSON data.

    An unfinished packing is resumed only by a call with the same plan.
    """
    return {
        "source": fingerprint(text.stamps), "documents": text.rule, "encoding": text.encoding,
        "held_out": text.held_out_rule, "tokenizer": choice.made,
        "tokenizer_sha256": files.sha256(choice.path) if choice.path else None,
        "encoder": tokenizing.version(), **asdict(options),
    }


def _encoder(
    text: Text, choice: Choice, state: Path, size: int, reporter: Reporter
) -> Encoder:
    """Return the tokenizer; a BPE is first trained on the split `train`, and stored in `state`."""
    if choice.path is not None:
        return Encoder(choice.path.read_bytes(), choice.path)
    kept = state / FILE
    if choice.size and not kept.is_file():
        with reporter.bar(f"training {choice.made}", size, unit="B") as advance:
            files.write_atomic(kept, tokenizing.trained(_training(text, advance), choice.size))
    return Encoder(kept.read_bytes() if choice.size else tokenizing.of_bytes(), kept)


def _training(text: Text, advance: Advance) -> Iterator[str]:
    for one in text.documents():
        if one.split == "train":
            yield one.content.decode()
        advance(len(one.content))


def _batches(text: Text) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the documents that can be used, with their splits, in batches of `BATCH_BYTES`."""
    batch: list[tuple[str, bytes]] = []
    size = 0
    for one in text.documents():
        if one.fault is None:
            batch.append((one.split, one.content))
            size += len(one.content)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Split:
    """The finished shards of one split, and the documents that will be in its next shard."""

    def __init__(self, folder: Path, name: str, token: TokenType) -> None:
        self._folder, self._name, self._token = folder, name, token
        self.shards: list[Shard] = []
        self._documents: list[Tokens] = []
        self._tokens = self._bytes = 0
        while (shard := self._kept()) is not None:
            self.shards.append(shard)
        self.skipped = sum(shard.samples for shard in self.shards)
        """Number of documents in shards that an earlier, interrupted packing finished.

        These documents are not packed again.
        """

    @property
    def _note(self) -> Path:
        return self._folder / unfinished.STATE / f"{self._stem}.json"

    @property
    def _stem(self) -> str:
        return f"{self._name}-{len(self.shards):05d}"

    def _kept(self) -> Shard | None:
        """Return the next shard if an earlier packing finished it and it is unchanged, else None.

        The earlier packing was interrupted.
        """
        if not self._note.is_file():
            return None
        done = packer.still_there((self._folder, self._note), lambda amount: None)
        return done.shard if done else None

    def add(self, document: Tokens, size: int) -> tuple[int, int]:
        """Add a document to the next shard; `size` is the size of its text in bytes.

        Returns:
            The numbers of documents and of tokens that the next shard has now.
        """
        self._documents.append(document)
        self._tokens += len(document)
        self._bytes += size
        return len(self._documents), self._tokens

    def finish(self) -> None:
        """Write the documents as the next shard, and record that the shard is finished."""
        if not self._documents:
            return
        state = self._folder / unfinished.STATE
        shard = tokens.write(state, self._stem, self._token, self._documents, self._bytes)
        (state / shard.file).replace(self._folder / shard.file)
        done = Done(stem=self._stem, shard=shard, bad=[])
        files.write_atomic(self._note, json.dumps(done.model_dump(exclude={"stem"})) + "\n")
        self.shards.append(shard)
        self._documents, self._tokens, self._bytes = [], 0, 0


class _Packing:
    """A writer of the shards of all splits.

    Attributes:
        kept: the shards that an earlier, interrupted packing finished.
        unknown: number of "unknown" tokens, which replace text outside of the vocabulary. Shards in
            `kept` are not counted.
    """

    def __init__(self, folder: Path, encoder: Encoder, options: Options, found: Survey) -> None:
        self._encoder, self._samples = encoder, options.samples
        names = ["train", *sorted(set(found.documents) - {"train"})]
        self._splits = {name: _Split(folder, name, encoder.token) for name in names}
        self.kept = [shard for split in self._splits.values() for shard in split.shards]
        self._left = {name: split.skipped for name, split in self._splits.items()}
        self.unknown = 0

    def add(self, batch: list[tuple[str, bytes]], advance: Advance) -> None:
        """Add the documents of `batch` to the shards.

        Documents are left out if they are in a shard that an earlier, interrupted packing finished.
        Each element of `batch` is the split and the content of a document.
        """
        new = []
        for split, content in batch:
            if self._left[split]:
                self._left[split] -= 1
            else:
                new.append((split, content))
        encoded = self._encoder.encode([content for _, content in new])
        for (name, content), document in zip(new, encoded, strict=True):
            into = self._splits[name]
            if self._encoder.unknown is not None:
                self.unknown += int((document[:-1] == self._encoder.unknown).sum())
            documents, count = into.add(document, len(content))
            if count >= SHARD_TOKENS or documents == self._samples:
                into.finish()
        advance(sum(len(content) for _, content in batch))

    def finished(self) -> dict[str, list[Shard]]:
        """Write the last shard of each split, and return the shards of all splits."""
        for split in self._splits.values():
            split.finish()
        return {name: split.shards for name, split in self._splits.items()}


def _describe(
    text: Text, options: Options, choice: Choice, encoder: Encoder,
    shards: Mapping[str, list[Shard]], skipped: int,
) -> Dataset:
    return Dataset(
        name=options.name, format="tokens", classes=[], labels="none", sample="text",
        text=TextFacts(
            token=encoder.token, vocabulary=encoder.vocabulary, end=encoder.end,
            tokenizer=TokenizerEntry(
                file=FILE, sha256=hashlib.sha256(encoder.file).hexdigest(), made=choice.made,
            ),
            documents=text.rule, held_out=text.held_out_rule,
        ),
        splits={name: PackedSplit.of(listed) for name, listed in shards.items()},
        origin=Origin(contents=text.contents, encoder=tokenizing.version(), skipped=skipped),
    )
