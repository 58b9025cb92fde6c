"""Print the images that the release workflow builds, from their definitions.

The output is the two matrices of .github/workflows/images.yml, as lines for $GITHUB_OUTPUT:

    frameworks=[{"image": "torch-cpu"}, …]
    apps=[{"image": "resnet-imagenet-torch-cpu", "framework": "torch-cpu"}, …]

Images for AMD GPUs are omitted unless `--amd` is given, because their base images alone are larger
than the disk of a runner of GitHub.
"""

from __future__ import annotations

import argparse
import json
import sys

from trimaran.errors import TrimaranError
from trimaran.images import definition
from trimaran.images.definition import Image


def plan(only: str | None, *, amd: bool) -> dict[str, list[dict[str, str]]]:
    """Return the workflow's matrices for all images, or for `only` and its framework image.

    Raises:
        UsageError: No image has the name `only`.
    """
    chosen = definition.chain(definition.load(only)) if only else definition.every()
    if not only and not amd:
        chosen = [image for image in chosen if definition.chain(image)[0].gpu != "amd"]
    return {
        "frameworks": [_entry(image) for image in chosen if image.kind == "framework"],
        "apps": [_entry(image) for image in chosen if image.kind == "app"],
    }


def _entry(image: Image) -> dict[str, str]:
    return {"image": image.name} | ({"framework": image.framework} if image.framework else {})


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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
