"""Write the software bill of materials (SBOM) of an image as CycloneDX JSON, from its inventory.

A licence is `declared` if the package declares it, and `concluded` if a person has read the
copyright file (`containers/licences.yaml`; the reason becomes a property). A licence that only the
running text of a copyright file mentions is recorded as evidence, not as the component's licence.

Equal inventories give equal text: the serial number is a hash of the content, and the date is the
date of the image (`SOURCE_DATE_EPOCH`, or else its label `created`).
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Literal

from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import (
    DisjunctiveLicense,
    License,
    LicenseAcknowledgement,
    LicenseExpression,
)
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.spdx import is_expression
from packageurl import PackageURL
from packaging.utils import (
    InvalidSdistFilename,
    canonicalize_name,
    canonicalize_version,
    parse_sdist_filename,
    parse_wheel_filename,
)

from trimaran import __version__
from trimaran.engines.image_contents import Inventory
from trimaran.images import definition, lock, wheelhouse
from trimaran.images.definition import Image
from trimaran.provenance import licences

VERSION = SchemaVersion.V1_6
DECLARED, CONCLUDED = LicenseAcknowledgement.DECLARED, LicenseAcknowledgement.CONCLUDED

Hashes = Mapping[tuple[Literal["debian", "python"], str, str], str]
"""(kind, name, version) of a package -> SHA-256 of its package file."""


def text(found: Inventory, hashes: Hashes) -> str:
    """Return the SBOM of a built image as CycloneDX JSON.

    Args:
        found: inventory of the image: packages, licences, labels and digest.
        hashes: hashes of package files; packages may be missing.
    """
    packages = [_system(found), *_debian(found, hashes), *_python(found, hashes)]
    return _document(_image(found), packages, _date(found))


def locked(image: Image) -> str:
    """Return the SBOM of the locked packages of `image`; no built image is needed.

    It contains no licences, no packages of the base image, and no hashes of wheels, because a lock
    accepts several wheels for a package.
    """
    packages = [
        *(_package(
            PackageURL("deb", "debian", deb.name, deb.version, {"arch": image.architecture}), [],
            deb.sha256, [],
        ) for deb in locked_debian(image)),
        *(_package(PackageURL("pypi", None, canonicalize_name(name), version), [], None, [])
          for name, version in locked_python(image).items()),
    ]
    about = Component(
        name=image.name, version=image.version, type=ComponentType.CONTAINER,
        bom_ref=f"image:{image.name}", description=image.description.strip(),
        licenses=_licences([image.licenses], DECLARED),
    )
    return _document(about, packages, None)


def locked_python(image: Image) -> dict[str, str]:
    """Return the versions of the locked Python packages of `image` and its framework image."""
    versions: dict[str, str] = {}
    for part in definition.chain(image):
        file, python = definition.wheels_lock(part), definition.interpreter(part)
        entries = lock.read(file) if file else []
        versions |= {entry.name: entry.version for entry in entries
                     if entry.applies_to(python.version, image.architecture)}
        for source in definition.build_sources(part):
            with suppress(InvalidSdistFilename):  # a wheel; only the first stage uses it
                name, version = parse_sdist_filename(lock.file_name(source))
                versions[name] = str(version)
    return dict(sorted(versions.items()))


def locked_debian(image: Image) -> list[lock.DebianPackage]:
    """Return the locked Debian packages of `image` and its framework image."""
    file = definition.chain(image)[0].folder / definition.lock_name(image, "debian.lock")
    return lock.read_debian(file) if file.is_file() else []


def locked_hashes(image: Image) -> Hashes:
    """Return the hashes of the package files that the locks of `image` name."""
    hashes: dict[tuple[Literal["debian", "python"], str, str], str] = {
        ("debian", package.name, package.version): package.sha256
        for package in locked_debian(image)
    }
    for part in definition.chain(image):
        for item in wheelhouse.chosen(part):
            name, version, _, _ = parse_wheel_filename(item.filename)
            hashes["python", name, canonicalize_version(version)] = item.sha256
    return hashes


def _document(
    image: Component, packages: Sequence[Component], date: datetime | None
) -> str:
    """Return an SBOM as JSON; its serial number is derived from its content."""
    numberless = _json(image, packages, date, uuid.UUID(int=0))
    content = hashlib.sha256(numberless.encode()).hexdigest()
    return _json(image, packages, date, uuid.uuid5(uuid.NAMESPACE_OID, content)) + "\n"


def _json(
    image: Component, packages: Sequence[Component], date: datetime | None, number: uuid.UUID
) -> str:
    bom = Bom(
        serial_number=number, components=packages,
        metadata=BomMetaData(
            component=image, timestamp=date,
            tools=ToolRepository(components=[
                Component(name="trimaran", version=__version__, type=ComponentType.APPLICATION),
                this_component(),
            ]),
        ),
        dependencies=[
            Dependency(image.bom_ref, [Dependency(package.bom_ref) for package in packages]),
            *(Dependency(package.bom_ref) for package in packages),
        ],
    )
    # The library inserts the current time by default; the declared type lacks None.
    bom.metadata.timestamp = date  # type: ignore[assignment]
    return make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=2)


def _image(found: Inventory) -> Component:
    about = {name.rpartition("image.")[2]: value for name, value in found.labels.items()
             if name.startswith("org.opencontainers.image.")}
    return Component(
        name=found.image, version=about.get("version"), type=ComponentType.CONTAINER,
        bom_ref=f"image:{found.image}", description=about.get("description"),
        licenses=_licences([about["licenses"]] if "licenses" in about else [], DECLARED),
        properties=[
            Property(name="trimaran:image:engine", value=found.engine),
            Property(name="trimaran:image:digest", value=found.digest),
            *(Property(name=f"trimaran:image:{name}", value=about[name])
              for name in ("base.name", "base.digest", "revision") if name in about),
        ],
    )


def _system(found: Inventory) -> Component:
    return Component(
        name=found.release.get("ID", "linux"), version=found.release.get("VERSION_ID"),
        type=ComponentType.OPERATING_SYSTEM, bom_ref="operating-system",
        description=found.release.get("PRETTY_NAME"),
    )


def _debian(found: Inventory, hashes: Hashes) -> Iterator[Component]:
    vendor = found.release.get("ID", "debian")
    settled = licences.settled()
    distribution = f"{vendor}-{found.release.get('VERSION_ID', '')}".rstrip("-")
    for package in found.debian:
        purl = PackageURL(
            "deb", vendor, package.name, package.version,
            {"arch": package.architecture, "distro": distribution},
        )
        properties = [Property(name="trimaran:debian:source", value=package.source)]
        stated, found_in_text = package.licences, package.mentioned
        if by_hand := settled.get(package.name):
            properties.append(Property(name="trimaran:licence:reason", value=by_hand.reason))
            found_in_text = stated + found_in_text
        yield _package(
            purl,
            _licences([by_hand.licence], CONCLUDED) if by_hand else _licences(stated, DECLARED),
            hashes.get(("debian", package.name, package.version)), properties,
            ComponentEvidence(licenses=_licences(found_in_text, None)) if found_in_text else None,
        )


def _python(found: Inventory, hashes: Hashes) -> Iterator[Component]:
    for package in found.python:
        name = canonicalize_name(package.name)
        purl = PackageURL("pypi", None, name, package.version)
        key = canonicalize_version(package.version)
        yield _package(
            purl, _licences(package.licences, DECLARED), hashes.get(("python", name, key)), []
        )


def _package(
    purl: PackageURL, stated: Iterable[License], sha256: str | None,
    properties: Iterable[Property], evidence: ComponentEvidence | None = None,
) -> Component:
    return Component(
        name=purl.name, version=purl.version, type=ComponentType.LIBRARY, purl=purl,
        bom_ref=purl.to_string(), licenses=stated, properties=properties, evidence=evidence,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
    )


def _licences(names: Iterable[str], how: LicenseAcknowledgement | None) -> list[License]:
    stated = list(names)
    # CycloneDX allows one expression, or any number of single licences.
    if len(stated) == 1 and not licences.identifier(stated[0]) and is_expression(stated[0]):
        return [LicenseExpression(stated[0], acknowledgement=how)]
    unique = {licences.identifier(name) or name: licences.identifier(name) for name in stated}
    return [
        DisjunctiveLicense(id=known, acknowledgement=how) if known
        else DisjunctiveLicense(name=name, acknowledgement=how)
        for name, known in unique.items()
    ]


def _date(found: Inventory) -> datetime | None:
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return datetime.fromtimestamp(int(epoch), timezone.utc)
    created = found.labels.get("org.opencontainers.image.created", "")
    try:
        return datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return None
