"""Write and recognise image archives: tar files from which an engine can build an image."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from datetime import datetime, timezone
from pathlib import Path

from trimaran.errors import UsageError
from trimaran.files import sha256
from trimaran.images.parts import SYSTEM_PATH


def fill_holes(sparse: Path, layer: Path) -> None:
    """Copy the tar file `sparse` to `layer` and write zeros in place of holes.

    mmdebstrap 1.6 omits the holes of sparse files; podman 4 changes the size of such a layer
    when it exports it.
    """
    with tarfile.open(sparse) as source, tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in source:
            content = source.extractfile(entry) if entry.isreg() else None
            entry.pax_headers = {
                key: text for key, text in entry.pax_headers.items()
                if not key.startswith("GNU.sparse.") and key not in ("path", "size")
            }
            tar.addfile(entry, content)


def pack(layer: Path, archive: Path, epoch: int) -> str:
    """Write a docker-archive with one layer; return the digest of the image's configuration."""
    moment = datetime.fromtimestamp(epoch, timezone.utc).isoformat().replace("+00:00", "Z")
    layer_hash = sha256(layer)
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "created": moment,
        "config": {"Env": [f"PATH={SYSTEM_PATH}"],
                   "Cmd": ["bash"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_hash}"]},
        "history": [{"created": moment, "created_by": "mmdebstrap"}],
    }).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{
        "Config": f"{digest}.json", "RepoTags": None, "Layers": [f"{layer_hash}/layer.tar"],
    }]).encode()
    with tarfile.open(archive, "w") as tar:
        for name, content in ((f"{digest}.json", config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        tar.add(layer, f"{layer_hash}/layer.tar", filter=_anonymous)
    return f"sha256:{digest}"


def kind(path: Path) -> str:
    """Return the format of an image archive: `docker-archive` or `oci-archive`.

    Raises:
        UsageError: The file is not an image archive.
    """
    try:
        with tarfile.open(path) as tar:
            names = {member.name.removeprefix("./") for member in tar}
    except tarfile.TarError as error:
        raise UsageError(
            f"--base {path}: the file is neither a SIF nor an image archive", code="base-invalid"
        ) from error
    if "manifest.json" in names:
        return "docker-archive"
    if "index.json" in names:
        return "oci-archive"
    raise UsageError(
        f"--base {path}: the tar file is not an image archive", code="base-invalid",
        hint="`podman save --format oci-archive` and `docker save` write image archives",
    )


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
