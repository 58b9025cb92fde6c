"""Test the documents of texts: their boundaries, their splits, and which ones are refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refused
from shards.kinds import DocumentRule
from trimaran.data.packing import dictd, documents, shares
from trimaran.data.packing.documents import Document, Text

TRAIN = {"train": (0, 100)}


def found(folder: Path, rule: DocumentRule = "file", **options: object) -> list[Document]:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    text = Text(folder, names, rule, TRAIN, **options)  # type: ignore[arg-type]
    return list(text.documents())


def contents(folder: Path, rule: DocumentRule = "file") -> list[bytes]:
    assert [one.fault for one in found(folder, rule) if one.fault] == []
    return [one.content for one in found(folder, rule)]


@pytest.mark.parametrize(("rule", "wanted"), [
    ("file", [b"one\r\ntwo\n\n \n\nthree\n  four"]),
    ("line", [b"one", b"two", b"three", b"  four"]),
    ("blank-lines", [b"one\r\ntwo\n", b"three\n  four"]),
])
def test_a_rule_divides_a_file(rule: DocumentRule, wanted: list[bytes], tmp_path: Path) -> None:
    text = b"one\r\ntwo\n\n \n\nthree\n  four"
    (tmp_path / "a.txt").write_bytes(text)
    assert [one.content for one in found(tmp_path, rule) if not one.fault] == wanted
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text))
    assert [one.content for one in found(tmp_path, rule) if not one.fault] == wanted


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))))
def test_each_line_of_json_is_a_document_by_any_rule(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("json")
    kept = [one for one in texts if one.strip()]
    lines = "".join(json.dumps({"id": 1, "text": one}) + "\n\n" for one in kept)
    (folder / "a.jsonl").write_text(lines)
    for rule in ("file", "line", "blank-lines"):
        assert contents(folder, rule) == [one.encode() for one in kept]


@pytest.mark.parametrize(("line", "fault"), [
    (b'{"text": 1}', "no field 'text'"), (b'["text"]', "no field 'text'"),
    (b"text", "not a JSON object"), (b'{"text": "a"', "not a JSON object"),
    (b'{"text": "\\ud800"}', "surrogate"), (b'{"text": "\\u0000"}', "NUL"),
    (b'{"text": "a\xff"}', "not utf-8: it has the byte 0xff at byte 29"),
    (b'{"text": ""}', "is empty"), (b'{"text": " \\n"}', "is empty"),
    (b"[" * 100_000, "not a JSON object"),
])
def test_a_line_without_a_text_is_a_fault_with_its_place(
    line: bytes, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "sound"}\n' + line + b'\n{"text": "c"}')
    first, second, third = found(tmp_path)
    assert (first.content, third.content) == (b"sound", b"c")
    assert second.place == f"{tmp_path / 'a.jsonl'}: the document at byte 18"
    assert second.fault is not None
    assert fault in second.fault


@pytest.mark.parametrize(("text", "fault"), [
    (b"", "is empty"), (b" \n\t\r\n", "is empty"), ("\u2003\n".encode(), "is empty"),
    (b"sound\xe9", "not utf-8: it has the byte 0xe9 at byte 5"),
    (b"\xed\xa0\x80", "not utf-8: it has the byte 0xed at byte 0"),
])
def test_a_file_that_is_empty_or_not_utf8_is_a_fault(
    text: bytes, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    (one,) = found(tmp_path)
    assert one.fault is not None
    assert fault in one.fault
    assert str(tmp_path / "a.txt") in one.place


def test_the_wrong_byte_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"first line\nsecond \x92 line\n")
    sound, bad = found(tmp_path, "line")
    assert sound.content == b"first line"
    assert bad.fault == "is not utf-8: it has the byte 0x92 at byte 18"


def test_another_encoding_becomes_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"market\x92s fa\xe7ade")
    (one,) = found(tmp_path, encoding="windows-1252")
    assert one.content.decode() == "market\u2019s fa\u00e7ade"


def test_a_damaged_archive_is_an_error_with_its_name(tmp_path: Path) -> None:
    whole = gzip.compress(b"text\n" * 10_000)
    for content in (whole[: len(whole) // 2], b"no gzip"):
        (tmp_path / "a.txt.gz").write_bytes(content)
        with refused("data-damaged", tmp_path / "a.txt.gz"):
            found(tmp_path)


@settings(deadline=None)
@given(st.binary(), st.integers(1, 99))
def test_a_document_is_in_one_split_which_its_content_decides(content: bytes, at: int) -> None:
    split = shares.split_of(content, {"train": (0, at), "val": (at, 100)})
    assert split == shares.split_of(content, {"val": (at, 100), "train": (0, at)})
    assert split == shares.split_of(content, {"train": (0, at), "val": (at, 99), "z": (99, 100)}
                                    ).replace("z", "val")


def test_folders_are_splits_if_one_is_train(tmp_path: Path) -> None:
    for name in ("train/a.txt", "train/deep/b.md", "val/c.txt", "readme.txt", ".hidden/d.txt",
                 "train/picture.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    text = documents.listed(tmp_path, "file", None)
    assert [(one.split, one.content.decode()) for one in text.documents()] == [
        ("train", "train/a.txt"), ("train", "train/deep/b.md"), ("val", "val/c.txt"),
    ]
    assert text.ignored == ["readme.txt", "train/picture.jpg"]
    with refused("arguments-conflict", "--held-out"):
        documents.listed(tmp_path, "file", 5)
    (tmp_path / "VAL").mkdir()
    (tmp_path / "VAL/x.txt").write_text("x")
    with refused("name-invalid", tmp_path / "VAL"):
        documents.listed(tmp_path, "file", None)


def test_a_source_without_text_is_refused(tmp_path: Path) -> None:
    with refused("file-missing", tmp_path / "none"):
        documents.listed(tmp_path / "none", "file", None)
    (tmp_path / "a.pdf").touch()
    for source in (tmp_path, tmp_path / "a.pdf"):
        with refused("layout-invalid", source):
            documents.listed(source, "file", None)


def test_what_cannot_be_read_is_named_or_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (source / "link").symlink_to(tmp_path / "elsewhere")
    (source / "sub/b.txt").write_text("b")
    (source / "z.txt").write_text("z")
    os.mkfifo(source / "pipe.txt")
    text = documents.listed(source, "file", 1)
    assert text.files == ["sub/b.txt", "z.txt"], "sorted by name"
    assert text.ignored == ["link/", "pipe.txt"]
    (source / "broken.txt").symlink_to(tmp_path / "none")
    with refused("file-missing", source / "broken.txt"):
        list(documents.listed(source, "file", 1).documents())
    (source / "broken.txt").unlink()
    Path(os.fsdecode(os.fsencode(source) + b"/\xff.txt")).write_text("name")
    with refused("name-invalid", "UTF-8"):
        documents.listed(source, "file", 1)


def written(folder: Path, index: bytes, dictionary: bytes | None, end: str = ".dict") -> Path:
    (folder / "a.index").write_bytes(index)
    if dictionary is not None:
        content = gzip.compress(dictionary) if end.endswith("dz") else dictionary
        (folder / f"a{end}").write_bytes(content)
    return folder / "a.index"


INDEX = b"00-database-info\tA\tC\nb\tE\tB\na\tC\tC\nsynonym of a\tC\tC\textra\n"


@pytest.mark.parametrize("about", [b"00-database-info", b"00databaseinfo"])
@pytest.mark.parametrize("end", [".dict", ".dict.dz"])
def test_the_entries_of_a_dictionary_are_its_documents(
    end: str, about: bytes, tmp_path: Path
) -> None:
    """Each entry occurs once, in the order of the file, without entries about the dictionary."""
    index = written(tmp_path, INDEX.replace(b"00-database-info", about), b"xxaab", end)
    assert list(dictd.entries(index)) == [(2, b"aa"), (4, b"b")]
    text = documents.listed(tmp_path, "dictd", 1)
    assert [one.content for one in text.documents()] == [b"aa", b"b"]
    assert text.ignored == []


def test_the_file_with_the_entries_is_named_and_recognized(tmp_path: Path) -> None:
    written(tmp_path, b"a\tA\tB\nb\tB\tB\n", b"x\xff", ".dict.dz")
    path = tmp_path / "a.dict.dz"
    text = documents.listed(tmp_path, "dictd", 1)
    _, bad = text.documents()
    assert bad.place == f"{path}: the document at byte 1"
    before = text.stamps
    path.write_bytes(path.read_bytes()[:-4])
    assert text.stamps != before
    with refused("data-damaged", path):
        list(text.documents())
    (tmp_path / "a.dict.dz").unlink()
    with refused("file-missing", tmp_path / "a.index", "a.dict.dz or a.dict"):
        list(text.documents())


@settings(deadline=None)
@given(st.integers(0, 2**40))
def test_numbers_of_an_index_have_base_64(value: int) -> None:
    digits, left = b"", value
    while left or not digits:
        digits, left = dictd.DIGITS[left % 64 : left % 64 + 1] + digits, left // 64
    assert dictd.number(digits) == value


@pytest.mark.parametrize(("index", "dictionary", "code", "fault"), [
    (b"a\tA\tB\nb\tA\n", b"x", "data-damaged", "line 2"),
    (b"a\tA\t?\n", b"x", "data-damaged", "line 1"),
    (b"a\tA\tB\nb\tB\tB\n", b"x", "data-damaged", "line 2 leads beyond"),
    (b"a\tA\tB\n", None, "file-missing", "a.dict"),
])
def test_a_dictionary_that_cannot_be_is_refused(
    index: bytes, dictionary: bytes | None, code: str, fault: str, tmp_path: Path
) -> None:
    path = written(tmp_path, index, dictionary)
    with refused(code, path, fault):
        list(dictd.entries(path))
