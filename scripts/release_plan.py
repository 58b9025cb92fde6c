"""Print the images that the release workflow builds, from their definitions.

The output is the two matrices of .github/workflows/images.yml and the names of all images, as lines
for $GITHUB_OUTPUT:

    frameworks=[{"image": "torch-cpu", "architecture": "amd64", "runner": "ubuntu-24.04"}, …]
    apps=[{"image": "resnet-imagenet-torch-cpu", "framework": "torch-cpu", …}, …]
    images=torch-cpu resnet-imagenet-torch-cpu …

Images for AMD GPUs are omitted unless `--amd` is given, because their base images alone are larger
than the disk of a runner of GitHub.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from trimaran.errors import TrimaranError
from trimaran.images import definition
from trimaran.images.definition import Image

RUNNERS = {"amd64": "ubuntu-24.04", "arm64": "ubuntu-24.04-arm"}
"""Architecture -> label of GitHub's runners with such a processor."""


def plan(only: str | None, *, amd: bool) -> dict[str, list[dict[str, str]]]:
    """Return the workflow's matrices for all images, or for `only` and its framework image.

    Each image has one entry for each of its architectures.

    Raises:
        UsageError: No image has the name `only`.
    """
    chosen = definition.chain(definition.load(only)) if only else definition.every()
    if not only and not amd:
        chosen = [image for image in chosen if definition.chain(image)[0].gpu != "amd"]
    return {
        "frameworks": [
            one for image in chosen if image.kind == "framework" for one in _entries(image)],
        "apps": [one for image in chosen if image.kind == "app" for one in _entries(image)],
    }


def _entries(image: Image) -> Iterator[dict[str, str]]:
    for architecture in definition.chain(image)[0].architectures:
        entry = {"image": image.name, "architecture": architecture, "runner": RUNNERS[architecture]}
        yield entry | ({"framework": image.framework} if image.framework else {})


def main(arguments: list[str]) -> int:
    """Print the workflow's matrices; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", metavar="IMAGE", help="this image and its framework image")
    parser.add_argument("--amd", action="store_true", help="include images for AMD GPUs")
    options = parser.parse_args(arguments)
    try:
        found = plan(options.only or None, amd=options.amd)
    except TrimaranError as error:
        sys.stderr.write(f"error: {error}" + (f"\n  {error.hint}" if error.hint else "") + "\n")
        return int(error.exit_code)
    for name, entries in found.items():
        sys.stdout.write(f"{name}={json.dumps(entries)}\n")
    images = [entry["image"] for entries in found.values() for entry in entries]
    sys.stdout.write(f"images={' '.join(dict.fromkeys(images))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
