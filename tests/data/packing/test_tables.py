"""Tables of labels, written by hand or by spreadsheets: read correctly, or refused by an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from photos import jpeg
from refusals import refused
from trimaran import cli
from trimaran.data import dataset_json
from trimaran.data.packing import labelled
from trimaran.data.packing.listing import Listing
from trimaran.reporting import Silent

NAMES = ("train/0.jpg", "train/1.jpg", "val/2.jpg")
PLAIN = "file,classes\ntrain/0.jpg,Mass|Edema\ntrain/1.jpg,\nval/2.jpg,Mass\n"
HEAD = "file,classes\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        place = tmp_path / "xrays" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(jpeg(number))
    return tmp_path / "xrays"


def listed(root: Path, content: str | bytes, told: Silent | None = None,
           classes: list[str] | None = None) -> Listing:
    table = root.parent / "labels.csv"
    table.write_bytes(content.encode() if isinstance(content, str) else content)
    return labelled.listing(root, table, told or Silent(), classes=classes)


SPREADSHEETS: dict[str, str | bytes] = {
    "a byte-order mark": PLAIN.encode("utf-8-sig"),
    "semicolons between fields": PLAIN.replace(",", ";"),
    "tabs between fields": PLAIN.replace(",", "\t"),
    "lines of Windows": PLAIN.replace("\n", "\r\n"),
    "lines of old Macs": PLAIN.replace("\n", "\r"),
    "no end of the last line": PLAIN.rstrip("\n"),
    "blank lines": "\n" + PLAIN.replace("\n", "\n  \n\n"),
    "spaces around names": PLAIN.replace("|", " | ").replace("Mass\n", "Mass \n"),
    "spaces around fields": PLAIN.replace(",", " , "),
    "no-break spaces around names": PLAIN.replace("|", "\u00a0|\u00a0"),
    "quotes": PLAIN.replace("Mass|Edema", '"Mass|Edema"').replace("train/1.jpg", '"train/1.jpg"'),
    "quotes behind a space": PLAIN.replace(",Mass|Edema", ', "Mass|Edema"'),
    "empty columns at the end": PLAIN.replace("\n", ",,\n"),
    "the columns the other way round": "classes,file\nMass|Edema,train/0.jpg\n,train/1.jpg\n"
                                       "Mass,val/2.jpg\n",
    "a class twice": PLAIN.replace("Mass|Edema", "Mass|Edema|Mass "),
}


@pytest.mark.parametrize("content", SPREADSHEETS.values(), ids=SPREADSHEETS)
def test_what_spreadsheets_write_means_the_same(content: str | bytes, root: Path) -> None:
    found = listed(root, content)
    assert found.classes == ["Edema", "Mass"]
    assert {one.name: one.labels for split in found.splits.values() for one in split} == {
        "train/0.jpg": (0, 1), "train/1.jpg": (), "val/2.jpg": (1,),
    }


REFUSED: dict[str, tuple[str | bytes, str, str]] = {
    "a comma without quotes": (HEAD + "train/0.jpg,Mass,Edema\n",
        "table-invalid", ":2: has 3 fields, the first"),
    "in a later line": (PLAIN + "train/9.jpg,Mass,Edema\n", "table-invalid", ":5: has 3 fields"),
    "behind blank lines": ("\n\n" + HEAD + "\ntrain/0.jpg,Mass,Edema\n",
        "table-invalid", ":5: has 3 fields"),
    "a row without a comma": (HEAD + "train/0.jpg\n",
        "table-invalid", ":2: has 1 fields, the first line 2"),
    "a row of commas": (HEAD + "train/0.jpg,\n,\n", "table-invalid", ":3: '' is not a path"),
    "a row with more commas": (HEAD + "train/0.jpg,,\n", "table-invalid", ":2: has 3 fields"),
    "a semicolon too many": ("file;classes\ntrain/0.jpg;Mass;Edema\n",
        "table-invalid", ":2: has 3 fields"),
    "a tab too many": ("file\tclasses\ntrain/0.jpg\tMass\tEdema\n",
        "table-invalid", ":2: has 3 fields"),
    "another delimiter in a row": (HEAD + "train/0.jpg;Mass\n",
        "table-invalid", ":2: has 1 fields"),
    "headers twice": ("file,classes,classes\ntrain/0.jpg,Mass,Edema\n",
        "table-invalid", "'classes' occurs"),
    "headers twice, with a space": ("file,classes,classes \ntrain/0.jpg,a,b\n",
        "table-invalid", "classes"),
    "the file twice": ("file,file,classes\ntrain/0.jpg,a,b\n",
        "table-invalid", "the column 'file' occurs"),
    "the patient twice": ("file,classes,patient,patient\ntrain/0.jpg,a,1,2\n",
                          "table-invalid", "'patient' occurs"),
    "an unused column twice": ("file,classes,age,age\ntrain/0.jpg,a,1,2\n",
        "table-invalid", "'age' occurs"),
    "a value in no column": ("file,classes,\ntrain/0.jpg,Mass,Edema\n",
                             "table-invalid", ":2: 'Edema' is in a column without a name"),
    "other columns": ("name,labels\ntrain/0.jpg,Mass\n",
                      "table-invalid", "file and classes; its columns are: 'name', 'labels'"),
    "one column is another": ("file,labels\n",
        "table-invalid", "the column classes; its columns are: 'file', 'labels'"),
    "capitals": ("File,Classes\n", "table-invalid", "its columns are: 'File', 'Classes'"),
    "no header": ("train/0.jpg,Mass\n", "table-invalid", "its columns are: 'train/0.jpg', 'Mass'"),
    "colons between fields": ("file:classes\n", "table-invalid", "its columns are: 'file:classes'"),
    "bars between fields": ("file|classes\n", "table-invalid", r"its columns are: 'file\|classes'"),
    "a spreadsheet's hint first": ("sep=,\n" + PLAIN,
        "table-invalid", "its columns are: 'sep=', ''"),
    "nothing": ("", "table-invalid", "its columns are: none"),
    "blank lines only": ("\n \n", "table-invalid", "its columns are: none"),
    "two byte-order marks": ("\ufeff\ufeff" + PLAIN,
        "table-invalid", r"its columns are: '\\ufefffile'"),
    "UTF-16": (PLAIN.encode("utf-16"),
        "table-invalid", r"cannot read .*csv:1: b'\\xff' is not UTF-8"),
    "Latin-1": (PLAIN.encode() + "val/é.jpg,\n".encode("latin-1"),
        "table-invalid", r"csv:5: b'\\xe9' is not UTF-8"),
    "a header behind the header": (HEAD + HEAD, "table-invalid", ":2: 'file' is not a path"),
    "a quote that is not closed": (HEAD + 'train/0.jpg,"Mass\ntrain/1.jpg,\n',
                                   "table-invalid", "csv:2: unexpected end of data"),
    "text behind a quote": (HEAD + 'train/0.jpg,"Mass"x\n',
        "table-invalid", "cannot read .*csv:2: .* expected"),
    "a quote that swallows a line": (HEAD + 'train/0.jpg,"Mass\ntrain/1.jpg,Edema"\n',

        "class-ambiguous", r":2: the class 'Mass\\ntrain/1.jpg,Edema' contains ','"),
    "a semicolon between classes": (HEAD + "train/0.jpg,Mass;Edema\n",
                                    "class-ambiguous", ":2: the class 'Mass;Edema' contains ';'"),
    "a comma between classes": (HEAD + 'train/0.jpg,"Mass,Edema"\n',
        "class-ambiguous", "'Mass,Edema' contains ','"),
    "a tab between classes": (HEAD + "train/0.jpg,Mass\tEdema\n",
                              "class-ambiguous", r"'Mass\\tEdema' contains '\\t'"),
    "a broken bar": (HEAD + "train/0.jpg,Mass\u00a6Edema\n",
        "class-ambiguous", "contains '\u00a6'"),
    "a full-width bar": (HEAD + "train/0.jpg,Mass\uff5cEdema\n",
        "class-ambiguous", "contains '\uff5c'"),
    "a slash between classes": (HEAD + "train/0.jpg,Mass/Edema\ntrain/1.jpg,Mass|Edema\n",

        "class-ambiguous", ":2: the class 'Mass/Edema' looks like the classes Mass and Edema"),
    "a plus between classes": (HEAD + "train/0.jpg,Mass|Edema\ntrain/1.jpg,Mass + Edema\n",
                               "class-ambiguous", ":3: .* looks like the classes Mass and Edema"),
    "a space between classes": (HEAD + "train/0.jpg,Mass Edema\nval/2.jpg,Edema|Mass\n",
                                "class-ambiguous", ":2: .* looks like the classes Mass and Edema"),
    "two bars": (HEAD + "train/0.jpg,Mass||Edema\n",
        "table-invalid", r":2: 'Mass\|\|Edema' contains an empty class name"),
    "a bar at the end": (HEAD + "train/0.jpg,Mass|\n", "table-invalid", "an empty class name"),
    "a bar alone": (HEAD + "train/0.jpg,|\n", "table-invalid", "an empty class name"),
    "capitals of a class": (HEAD + "train/0.jpg,Mass\ntrain/1.jpg,mass\n",

        "class-ambiguous", ":3: the class 'mass' differs from 'Mass' only in case"),
    "two spaces in a class": (HEAD + "train/0.jpg,Pleural  Mass\ntrain/1.jpg,Pleural Mass\n",

        "class-ambiguous", "differs from 'Pleural  Mass' only in case, spaces"),
    "an underscore in a class": (HEAD + "train/0.jpg,Pleural_Mass\ntrain/1.jpg,Pleural Mass\n",

        "class-ambiguous", "differs from 'Pleural Mass' only in case, spaces"),
    "two forms of a letter": (HEAD + "train/0.jpg,\u00d6dem\ntrain/1.jpg,O\u0308dem\n",

        "class-ambiguous", "differs from 'O\u0308dem' only in .* the form of letters"),
    "a letter without width": (HEAD + "train/0.jpg,Mass\u200b\n",
        "class-ambiguous", r"character U\+200B"),
    "a NUL": (HEAD + "train/0.jpg,Ma\0ss\n", "class-ambiguous", r"U\+0000|cannot read"),
    "a spreadsheet's quotes": (HEAD + "train/0.jpg,\u201cMass\u201d\n",
                               "class-ambiguous", "begins or ends with a quote"),
    "single quotes": (HEAD + "train/0.jpg,'Mass|Edema'\n",
        "class-ambiguous", "begins or ends with a quote"),
    "a patient with a space": ("file,classes,patient\ntrain/0.jpg,,7\nval/2.jpg,, 7 \n",
                               "patient-shared", ":3: the patient '7' is in two splits"),
    "a patient of spaces": ("file,classes,patient\ntrain/0.jpg,,  \n",
        "table-invalid", ":2: .* has no patient"),
    "a file twice, with a space": (HEAD + "train/0.jpg,\n train/0.jpg ,Mass\n",
        "table-invalid", ":3: .* is listed twice, first in line 2"),
    "a path of Windows": (HEAD + "train\\0.jpg,Mass\n",
        "table-invalid", ":2: .* is not a path SPLIT/FILE"),
}


@pytest.mark.parametrize(("content", "code", "fault"), REFUSED.values(), ids=REFUSED)
def test_what_would_make_a_wrong_label_is_refused_by_its_line(
    content: str | bytes, code: str, fault: str, root: Path
) -> None:
    with refused(code, "labels.csv") as caught:
        listed(root, content)
    assert re.search(fault, caught.value.message)


def test_classes_that_are_named_may_have_anything_in_them(root: Path) -> None:
    names = ["tench, Tinca tinca", "C/C++", "c/c++", "'quoted'"]
    text = HEAD + 'train/0.jpg,"tench, Tinca tinca"\ntrain/1.jpg,c/c++| \'quoted\'\nval/2.jpg,\n'
    found = listed(root, text, classes=names)
    assert [one.labels for one in found.splits["train"]] == [(0,), (2, 3)]


def test_a_class_with_a_slash_in_it_is_one_where_its_parts_are_none(root: Path) -> None:
    found = listed(root, HEAD + "train/0.jpg,C/C++\ntrain/1.jpg,Rock & Roll|No Finding\n")
    assert found.classes == ["C/C++", "No Finding", "Rock & Roll"]


def test_columns_that_are_not_used_are_named(root: Path) -> None:
    told = Silent()
    listed(root, "file,classes,Patient,age\ntrain/0.jpg,Mass,7,50\n", told)
    assert any("unused columns: 'Patient', 'age'" in line for line in told.warnings)


def test_what_is_no_file_is_named(root: Path) -> None:
    (root / "train/folder.jpg").mkdir()
    with refused("file-not-plain", "csv:2:", "train/folder.jpg"):
        listed(root, HEAD + "train/folder.jpg,Mass\n")


def test_the_option_that_names_the_classes_is_read_alike(root: Path) -> None:
    assert labelled.classes_of(" Mass | Edema ") == ["Mass", "Edema"]
    for text in ("Mass| ", "Mass|Mass ", "Mass;Edema", "Mass,Edema", "Mass\tEdema"):
        with refused("argument-invalid", "--classes", repr(text)):
            labelled.classes_of(text)
    (root / "labels.csv").write_text(PLAIN)
    out = root.parent / "out"
    done = CliRunner().invoke(cli.app, [
        "data", "pack", str(root), "-o", str(out), "--workers", "1", "--classes", "Mass | Edema",
        "--labels", str(root / "labels.csv"),
    ])
    assert done.exit_code == 0, done.output
    assert dataset_json.read(out).classes == ["Mass", "Edema"]
