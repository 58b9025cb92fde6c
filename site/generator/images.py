"""Generate the catalogue of images, and a page for each image with content and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator import image_overview, markdown
from generator.evidence import ImageEvidence, Piece
from generator.pages import Page, fill
from generator.sources import Sources
from trimaran import paths
from trimaran.architectures import ending
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.provenance import digests, sbom

FOLDER = "images"

STRICT = ("proprietary", "copyleft")
"""The strictest kinds of licences; the catalogue counts only packages with such licences.

The page of an image shows all kinds.
"""

SHORT = 12
"""Number of digits of a digest in the catalogue; the page of an image shows all."""


def place(name: str) -> str:
    """Return the path of the page of an image."""
    return f"{FOLDER}/{name}.md"


def pages(sources: Sources) -> list[Page]:
    """Return the page with the catalogue, and a page for each image."""
    page = f"{FOLDER}/index.md"
    rows = [_row(page, one, sources) for image in sources.images
            for one in image_overview.on_each(image)]
    head = ["image", "what is in it", "SIF:", "start:", "SHA-256", "licences", "seen"]
    index = Page(page, fill("images.md.j2", page, table=markdown.table(head, rows)), "Images")
    return [index, *(_page(image, sources) for image in sources.images)]


def newest(image: Image, sources: Sources) -> Piece[ImageEvidence] | None:
    """Return the newest evidence about the current SIF of an image, or None if there is none."""
    found = sources.shelf.images.get(image.name, [])
    return next((piece for piece in found if image_overview.shows(image, piece.content)), None)


def hardware(image: Image) -> str:
    """Return the hardware of an image: CPU, or the vendor of the GPUs."""
    return image_overview.hardware(image)


def _row(page: str, image: Image, sources: Sources) -> list[str]:
    piece = newest(image, sources)
    content = _content(image)
    own = (f"[`{image.name}`]({markdown.link(page, place(image.name))})"
           f"<br><small>{hardware(image)}, {image.architecture}</small>")
    if piece is None:
        return [own, content, "no evidence", "", "", "", ""]
    seen = piece.content
    return [own, content, f"{seen.size / 1e6:,.0f} MB", image_overview.start(seen),
            f"`{seen.digest.removeprefix('sha256:')[:SHORT]}`", _strictest(seen),
            markdown.moment(seen.day)]


def _strictest(seen: ImageEvidence) -> str:
    """Return the number of packages with each kind of licence in `STRICT`, as text.

    Kinds that no package has are omitted.
    """
    counts = {kind: sum(of.get(kind, 0) for of in seen.licences.values()) for kind in STRICT}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _content(image: Image) -> str:
    framework = definition.chain(image)[0]
    if image.app is not None:
        return f"`{image.framework}` and {', '.join(image.app.packages)}"
    main = image_overview.packages(framework)
    return ", ".join(main) if image.variant is None else f"`{image.variant.of}` and compilers"


@dataclass(frozen=True)
class _Build:
    """The image for one processor architecture, as its page shows it.

    Attributes:
        architecture: the architecture.
        piece: newest evidence; None: there is none.
        bill: path of the bill of materials of its locks.
        python: table of its locked Python packages, with `python_count` rows.
        system: table of its locked Debian packages, with `system_count` rows.
        sizes: table of the largest items; empty without evidence.
        licences: table of licences by kind; empty without evidence.
    """

    architecture: str
    piece: Piece[ImageEvidence] | None
    bill: str
    python: str
    python_count: int
    system: str
    system_count: int
    sizes: str
    licences: str


def _build(image: Image, sources: Sources) -> _Build:
    piece = newest(image, sources)
    python = list(sbom.locked_python(image).items())
    system = [(package.name, package.version) for package in sbom.locked_debian(image)]
    return _Build(
        architecture=image.architecture, piece=piece, bill=_bill(image),
        python=markdown.table(["package", "version"], python), python_count=len(python),
        system=markdown.table(["package", "version"], system), system_count=len(system),
        sizes=_sizes(piece), licences=_licences(piece),
    )


def _bill(image: Image) -> str:
    return f"{FOLDER}/{image.name}{ending(image.architecture, '.')}.cdx.json"


def _page(image: Image, sources: Sources) -> Page:
    own, each = place(image.name), image_overview.on_each(image)
    users = [name for name, points in sources.recipes.items()
             if points[0].file.recipe.image.name == image.name]
    folder = image.folder.relative_to(paths.repository())
    known = [one for one in digests.load(digests.project_path()).published
             if one.image == image.name]
    framework = definition.chain(image)[0]
    text = fill(
        "image.md.j2", own, image=image, hardware=hardware(image),
        builds=[_build(one, sources) for one in each], lacks=framework.lacks,
        chain=[one.name for one in definition.chain(image)], published=known, users=users,
        folder=str(folder), gpu=framework.gpu,
    )
    return Page(own, text, image.name, "App images" if image.app else "Framework images",
                files={_bill(one): sbom.locked(one) for one in each})


def _sizes(piece: Piece[ImageEvidence] | None) -> str:
    if piece is None:
        return ""
    return markdown.table(["item", "MB:"], [
        [f"`{item.path}`", f"{item.size / 1e6:,.1f}"] for item in piece.content.largest
    ])


def _licences(piece: Piece[ImageEvidence] | None) -> str:
    if piece is None:
        return ""
    found = piece.content.licences
    kinds: Sequence[str] = list(dict.fromkeys(kind for those in found.values() for kind in those))
    return markdown.table(
        ["licences of this kind", *(f"{of}:" for of in found)],
        [[kind, *(str(found[of].get(kind, 0)) for of in found)] for kind in kinds],
    )
