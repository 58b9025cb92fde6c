"""Packing of texts: nothing is lost or added, the bytes are reproducible, and packing resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

import writtentexts
from packings import faults, files
from refusals import refused
from shards.description import DATASET
from shards.formats import tokens
from trimaran.data import dataset_json
from trimaran.data.packing import documents, shares, text_packer, tokenizing, unfinished
from trimaran.errors import Interrupted
from trimaran.files import SPARE_BYTES
from trimaran.reporting import Silent
from writtentexts import document, pack, unpacked

LINE = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"), min_size=1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return writtentexts.folder(tmp_path / "texts")


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_every_document_is_packed_once_in_its_order(
    tokenizer: str, source: Path, tmp_path: Path
) -> None:
    dataset = pack(source, tmp_path / "out", tokenizer=tokenizer, samples=7)
    order = [one.content.decode() for one in documents.listed(source, "file", 20).documents()]
    assert sorted(order) == sorted(map(document, range(60)))
    for split in ("train", "val"):
        wanted = [one for one in order
                  if shares.split_of(one.encode(), {"train": (0, 80), "val": (80, 100)}) == split]
        assert unpacked(tmp_path / "out", split) == wanted
        packed = dataset.splits[split]
        assert packed.samples == len(wanted)
        assert packed.text_bytes == sum(len(one.encode()) for one in wanted)
        readers = tokens.open_split(tmp_path / "out", dataset, split)
        assert packed.tokens == sum(len(one.tokens) for one in readers)
        assert [len(one) for one in readers[:-1]] == [7] * (len(readers) - 1)
    assert faults(tmp_path / "out") == []
    assert dataset.text is not None
    assert dataset.text.tokenizer.made == tokenizer
    assert dataset.kind.word == "text"


@settings(max_examples=20, deadline=None)
@given(lines=st.lists(LINE.filter(str.strip), min_size=1, max_size=20))
def test_any_lines_come_back(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("lines")
    (place / "train").mkdir()
    (place / "train/a.txt").write_bytes("\n".join(lines).encode())
    for tokenizer in ("bytes", "bpe:260"):
        out = place / tokenizer
        pack(place, out, tokenizer=tokenizer, rule="line", held_out=None)
        assert unpacked(out, "train") == lines
        assert faults(out) == []


def test_the_same_text_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack(source, tmp_path / name, tokenizer="bpe:300", samples=9)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_the_held_out_text_does_not_change_the_tokenizer(tmp_path: Path) -> None:
    for name, held_out in (("one", "xyz " * 50), ("two", "other words")):
        for split, text in (("train", document(1) * 5), ("val", held_out)):
            (tmp_path / name / split).mkdir(parents=True)
            (tmp_path / name / split / "a.txt").write_text(text)
        pack(tmp_path / name, tmp_path / f"{name}-out", tokenizer="bpe:300", held_out=None)
    first, second = (tmp_path / f"{name}-out/tokenizer.json" for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_a_shard_ends_with_the_document_that_fills_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_packer, "SHARD_TOKENS", 1000)
    monkeypatch.setattr(text_packer, "BATCH_BYTES", 500)
    dataset = pack(source, tmp_path / "out")
    *full, last = tokens.open_split(tmp_path / "out", dataset, "train")
    assert len(full) > 2
    assert all(len(one.tokens) >= 1000 > one.ends[-2] for one in full)
    assert len(last.tokens) < 1000 + max(len(document(n).encode()) for n in range(60)) + 1


def interrupting(after: int, real: Callable[..., object]) -> Callable[..., object]:
    """Return a function that calls `real` `after` times, and then raises KeyboardInterrupt."""
    calls = iter(range(after))

    def called(*args: object, **options: object) -> object:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(*args, **options)

    return called


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("batch", [100, 1 << 22])
def test_an_interrupted_packing_continues_to_the_same_bytes(
    after: int, batch: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(source, tmp_path / "whole", tokenizer="bpe:300", samples=7)
    monkeypatch.setattr(text_packer, "BATCH_BYTES", batch)
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "write", interrupting(after, tokens.write))
        with pytest.raises(Interrupted):
            pack(source, tmp_path / "out", tokenizer="bpe:300", samples=7)
    assert unfinished.is_under_way(tmp_path / "out")
    trained = iter(())
    with monkeypatch.context() as patched:
        patched.setattr(tokenizing, "trained", trained.__next__)  # it is kept
        pack(source, tmp_path / "out", tokenizer="bpe:300", samples=7)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_finished_shard_that_was_changed_is_written_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(source, tmp_path / "whole", samples=7)
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "write", interrupting(3, tokens.write))
        with pytest.raises(Interrupted):
            pack(source, tmp_path / "out", samples=7)
    shard = tmp_path / "out/train-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    pack(source, tmp_path / "out", samples=7)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.parametrize("change", [
    lambda source: (source / "0.txt").write_text("another text"),
    lambda source: (source / "new.txt").write_text("a new text"),
])
def test_an_interrupted_packing_of_another_text_is_not_continued(
    change: Callable[[Path], object], source: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "write", interrupting(0, tokens.write))
        with pytest.raises(Interrupted):
            pack(source, tmp_path / "out")
    for options in ({"tokenizer": "bpe:300"}, {"held_out": 30}, {"samples": 3}, {"rule": "line"}):
        with refused("packing-conflict", tmp_path / "out"):
            pack(source, tmp_path / "out", **options)  # type: ignore[arg-type]
    change(source)
    with refused("packing-conflict", tmp_path / "out"):
        pack(source, tmp_path / "out")


def test_bad_documents_are_all_named_before_anything_is_written(
    source: Path, tmp_path: Path
) -> None:
    (source / "empty.txt").write_text("\n")
    (source / "latin.txt").write_bytes(b"fa\xe7ade")
    with refused("document-invalid", source / "empty.txt", source / "latin.txt", "0xe7"):
        pack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    dataset = pack(source, tmp_path / "out", skip_bad=True)
    assert sum(one.samples for one in dataset.splits.values()) == 60
    assert dataset.origin is not None
    assert dataset.origin.skipped == 2
    skipped = (tmp_path / "out/skipped.txt").read_text()
    assert skipped.count("\n") == 2
    assert "empty.txt" in skipped


def test_a_split_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    with refused("split-empty", "val") as caught:
        pack(tmp_path / "a.txt", tmp_path / "out", held_out=1)
    assert "--held-out" in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_usable_documents_is_refused(tmp_path: Path) -> None:
    for name in ("train/a.txt", "val/b.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text("a" if "train" in name else " ")
    with refused("split-empty", "val") as caught:
        pack(tmp_path / "in", tmp_path / "out", held_out=None, skip_bad=True)
    assert "--held-out" not in (caught.value.hint or "")


def test_a_folder_in_use_is_refused_before_the_text_is_read(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(source, tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    monkeypatch.setattr(text_packer, "survey", None)
    for folder in ("out", "other", "other/file"):
        with refused("file-exists", tmp_path / folder):
            pack(source, tmp_path / folder)


def test_the_space_for_the_other_shards_is_checked(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[int] = []
    monkeypatch.setattr("trimaran.files.check_space",
                        lambda folder, size, *_: needed.append(size - SPARE_BYTES))
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "write", interrupting(2, tokens.write))
        with pytest.raises(Interrupted):
            pack(source, tmp_path / "out", samples=7)
    dataset = pack(source, tmp_path / "out", samples=7)
    size = sum(2 * (one.tokens or 0) + 8 * one.samples for one in dataset.shards)
    kept = dataset.splits["train"].shards[:2]
    assert needed == [size, size - sum(2 * (one.tokens or 0) + 8 * 7 for one in kept)]


def test_files_that_are_no_text_are_named(source: Path, tmp_path: Path) -> None:
    (source / "picture.jpg").touch()
    told = Silent()
    pack(source, tmp_path / "out", told=told)
    assert any("1 files are left out" in one and "picture.jpg" in one for one in told.warnings)


def test_text_that_a_vocabulary_cannot_express_is_counted(source: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "the": 1}, unk_token="?"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "words.json"))
    told = Silent()
    dataset = pack(source, tmp_path / "out", tokenizer=str(tmp_path / "words.json"), told=told)
    assert any("cannot express" in one for one in told.warnings)
    assert dataset.text is not None
    assert (dataset.text.end, dataset.text.tokenizer.made) == (2, "file")
    given_file = (tmp_path / "words.json").read_bytes()
    assert (tmp_path / "out/tokenizer.json").read_bytes() == given_file


def test_a_tokenizer_that_is_none_is_refused_before_the_text_is_read(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(text: documents.Text) -> Iterator[documents.Document]:
        raise AssertionError("the text is read")

    (tmp_path / "none.json").write_text("{}")
    monkeypatch.setattr(documents.Text, "documents", read)
    with refused("tokenizer-invalid", tmp_path / "none.json"):
        pack(source, tmp_path / "out", tokenizer=str(tmp_path / "none.json"))


@pytest.fixture
def out(source: Path, tmp_path: Path) -> Path:
    pack(source, tmp_path / "out", samples=20)
    return tmp_path / "out"


def described(out: Path, change: Callable[[dict[str, dict[str, object]]], object]) -> list[str]:
    """Apply `change` to the content of `dataset.json`; return the faults that `verify` reports."""
    document = json.loads((out / DATASET).read_text())
    change(document)
    (out / DATASET).write_text(json.dumps(document))
    return faults(out)


def test_another_tokenizer_is_found_and_named(out: Path) -> None:
    path = out / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b"\n")
    assert any(f"{path} is not the tokenizer of these tokens" in one for one in faults(out))
    path.unlink()
    assert faults(out) == [f"{path} is missing"]


def test_damaged_shards_are_found_and_named(out: Path) -> None:
    cut, changed = out / "train-00000.safetensors", out / "train-00001.safetensors"
    cut.write_bytes(cut.read_bytes()[:-1])
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1  # the end of the last document
    changed.write_bytes(content)
    (out / "val-00000.safetensors").unlink()
    found = faults(out)
    for part in (f"{cut} has", "truncated", f"{changed} is damaged: SHA-256",
                 f"{changed} has a wrong end of document 19",
                 f"{out / 'val-00000.safetensors'} is missing"):
        assert any(part in one for one in found), (part, found)


@pytest.mark.parametrize(("change", "fault"), [
    (lambda d: d["splits"]["train"].update(tokens=1), "split train: its shards do not add up"),
    (lambda d: d["splits"]["train"].pop("text_bytes"), "split train: its shards do not add up"),
    (lambda d: d["splits"]["val"].update(samples=1), "split val: its shards do not add up"),
    (lambda d: d["text"].update(vocabulary=200), "text.end"),
    (lambda d: d["text"].update(end=10), "wrong end of document 0"),
    (lambda d: d["text"].update({"token": "uint32"}), "uint16, uint32 is listed"),
    (lambda d: d.update(format="webdataset"), "cannot hold samples 'text'"),
])
def test_a_description_that_cannot_be_is_found(
    change: Callable[[dict[str, dict[str, object]]], object], fault: str, out: Path
) -> None:
    if fault == "text.end":
        with refused("file-invalid", "text.end"):
            described(out, change)
        return
    found = described(out, change)
    assert any(fault in one for one in found), found


def test_packed_text_is_described_strictly(out: Path) -> None:
    assert dataset_json.read(out).format == "tokens"
