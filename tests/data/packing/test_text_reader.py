"""Download and pack the text data set that a contract describes, and reject invalid contracts.

The downloaded text is a small dictionary in a Debian package.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import datasets
import writtentexts
from packings import files
from refusals import refused
from shards.description import DATASET
from trimaran.data import cache, contracts, dataset_json, sources
from trimaran.data.contracts import Contract
from trimaran.data.packing import shares
from trimaran.data.packing.licensed_text import LicensedText
from trimaran.data.packing.text_reader import DownloadedText
from trimaran.reporting import Silent

COMMITTED = Path(__file__).parents[3] / "recipes/data"
ENTRIES = [writtentexts.document(number) for number in range(40)]
SHARES = {"train": (0, 80), "val": (80, 100)}
COUNTS = {
    name: sum(shares.split_of(one.encode(), SHARES) == name for one in ENTRIES) for name in SHARES
}
FOLDER = "usr/share/dictd"


def base64(value: int) -> str:
    from trimaran.data.packing.dictd import DIGITS

    return (base64(value // 64) if value >= 64 else "") + chr(DIGITS[value % 64])


def dictionary() -> dict[str, bytes]:
    """Return file name -> content of a dictionary in the format of dictd."""
    text, lines = "about\n", ["00-database-info\tA\tG"]
    for number, entry in enumerate(ENTRIES):
        start, size = len(text.encode()), len(entry.encode())
        lines.append(f"word{number}\t{base64(start)}\t{base64(size)}")
        text += entry + "\n"
    index = "\n".join(sorted(lines)) + "\n"
    return {"small.dict.dz": gzip.compress(text.encode(), mtime=0), "small.index": index.encode()}


def about(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


@pytest.fixture
def described(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., DownloadedText]:
    """Return a function that writes the contract of a small text data set, and loads it.

    The contract is the YAML file that describes the data set; the text is a dictionary of words.
    The arguments of the function replace keys of the contract.
    """
    made = dictionary()
    deb = datasets.package({f"{FOLDER}/{name}": content for name, content in made.items()})
    path = tmp_path / "mirror/debian/pool/small.deb"
    path.parent.mkdir(parents=True)
    path.write_bytes(deb)
    monkeypatch.setattr(sources, "DEBIAN", (tmp_path / "mirror").as_uri())

    def write(**changes: Any) -> DownloadedText:
        content = yaml.safe_load((COMMITTED / "gcide.yaml").read_text()) | {
            "name": "small", "encoding": "utf-8", "tokenizer": "bpe:300",
            "files": {name: about(one) for name, one in made.items()},
            "splits": {name: {"samples": COUNTS[name], "percent": list(SHARES[name])}
                       for name in SHARES},
            "sources": [{"kind": "debian", "package": "small", "version": "1",
                         "path": "pool/small.deb", "snapshot": "20250520T000000Z", **about(deb),
                         "folder": FOLDER, "members": {name: name for name in made}}],
            **changes,
        }
        if "packed" not in changes:
            del content["packed"]
        (checkout / "recipes/data/small.yaml").write_text(yaml.safe_dump(content))
        found = contracts.load("small")
        assert isinstance(found, DownloadedText)
        return found

    return write


def get(contract: Contract) -> Path:
    return cache.get(contract, offline=False, reporter=Silent())


def test_a_dictionary_is_downloaded_and_packed(described: Callable[..., DownloadedText]) -> None:
    contract = described()
    folder = get(contract)
    dataset = dataset_json.read(folder)
    assert {name: one.samples for name, one in dataset.splits.items()} == COUNTS
    assert writtentexts.unpacked(folder, "train") == [
        one for one in ENTRIES if shares.split_of(one.encode(), SHARES) == "train"
    ]
    assert cache.verify(contract, reporter=Silent()) == []
    assert cache.state(contract) == "packed"
    assert cache.formats_here(contract) == ["tokens"]
    cache.check(contract, folder, COUNTS, "tokens", ["text"])
    with refused("data-mismatch", "its samples are 'text'"):
        cache.check(contract, folder, COUNTS, "tokens", ["class"])


def test_it_is_packed_into_the_bytes_that_the_contract_pins(
    described: Callable[..., DownloadedText]
) -> None:
    folder = get(described())
    first = files(folder)
    digest = hashlib.sha256(first[DATASET]).hexdigest()
    contract = described(packed={"sha256": digest})
    assert cache.verify(contract, reporter=Silent()) == []
    (folder / DATASET).unlink()
    assert files(get(contract)) == first


@pytest.mark.parametrize("name", ["tokenizer.json", "train-00000.safetensors"])
def test_what_is_damaged_is_packed_again(
    name: str, described: Callable[..., DownloadedText]
) -> None:
    contract = described()
    folder = get(contract)
    whole = files(folder)
    (folder / name).write_bytes(whole[name][:-1] + b"?")
    assert any(name in fault for fault in cache.verify(contract, reporter=Silent()))
    assert cache.state(contract) == "damaged"
    assert files(get(contract)) == whole


def test_another_number_of_documents_is_refused(described: Callable[..., DownloadedText]) -> None:
    contract = described(splits={"train": {"samples": 1, "percent": [0, 80]},
                                 "val": {"percent": [80, 100]}})
    with refused("data-mismatch", "split train", COUNTS["train"]):
        get(contract)


def test_images_and_texts_do_not_take_each_other_s_format(
    described: Callable[..., DownloadedText]
) -> None:
    with refused("format-unsuitable", "webdataset"):
        cache.get(described(), offline=True, reporter=Silent(), form="webdataset")
    with refused("format-unsuitable", "tokens"):
        cache.get(contracts.load("fashion-mnist"), offline=True, reporter=Silent(), form="tokens")


@pytest.mark.parametrize(("changes", "fault"), [
    ({"documents": "page"}, "documents"),
    ({"encoding": "latin-9"}, "encoding"),
    ({"tokenizer": "words"}, "tokenizer"),
    ({"tokenizer": "../a.json"}, "tokenizer"),
    ({"tokenizer": "a.json"}, "a.json is not in 'files'"),
    ({"splits": {"train": {"percent": [0, 90]}}}, "without gap or overlap"),
    ({"splits": {"val": {"percent": [0, 100]}}}, "'train' is missing"),
    ({"packing": {"format": "tokens"}}, "packing"),
])
def test_a_faulty_contract_is_named(
    changes: dict[str, Any], fault: str, described: Callable[..., DownloadedText]
) -> None:
    with refused("file-invalid", fault):
        described(**changes)


def test_fineweb_says_how_to_get_it_and_is_packed_from_a_folder(tmp_path: Path) -> None:
    contract = contracts.load("fineweb-10b")
    assert isinstance(contract, LicensedText)
    with refused("licence-required", "no checksums", "ODC-By-1.0") as caught:
        cache.get(contract, offline=False, reporter=Silent())
    assert "sample/10BT" in (caught.value.hint or "")
    lines = writtentexts.folder(tmp_path / "texts", 900)
    (tmp_path / "official").mkdir()
    texts = gzip.decompress((lines / "b.jsonl.gz").read_bytes())
    (tmp_path / "official/fineweb-10b.jsonl.gz").write_bytes(gzip.compress(texts))
    with refused("file-missing", "tokenizer.json"):
        cache.get(contract, offline=False, reporter=Silent(), source=tmp_path / "official")
    writtentexts.pack(lines, tmp_path / "other", tokenizer="bpe:300")
    tokenizer = (tmp_path / "other/tokenizer.json").read_bytes()
    (tmp_path / "official/tokenizer.json").write_bytes(tokenizer)
    folder = cache.get(contract, offline=False, reporter=Silent(), source=tmp_path / "official")
    dataset = dataset_json.read(folder)
    assert sum(one.samples for one in dataset.splits.values()) == texts.count(b"\n") + 1
    assert (folder / "tokenizer.json").read_bytes() == tokenizer
    assert cache.state(contract) == "packed"
