"""Write the digests of published images into the recipes that use the images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from trimaran import paths, strict
from trimaran.architectures import Architecture, of_machine
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.images import content_hash
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.recipes import library, targets
from trimaran.recipes.recipe import Recipe


def published(image: Image, place: str) -> dict[Architecture, str]:
    """Return the digests of this definition's SIF files in a registry, by architecture.

    `place` is `HOST[:PORT]/NAMESPACE`.
    """
    found = {}
    for architecture, content in content_hash.contents(image).items():
        for one in digests.load(digests.project_path()).published:
            if (one.image, one.form, one.architecture, one.content, one.place) == (
                image.name, "sif", architecture, content, place
            ):
                found[architecture] = one.digest
    return found


def pin(image: Image, place: str) -> list[Path]:
    """Write the digests of `published` into the project's recipes that use `image`.

    Return the paths of the changed recipes. A recipe is left out if the image is not published for
    the nodes of its target. No recipe is changed if one of them cannot be changed.

    Raises:
        UsageError: This is an installed package, or the lines of a recipe have a comment that would
            be lost.
    """
    paths.refuse_installed(paths.repository())
    pinned = published(image, place)
    texts = {}
    for name, path in library.files().items():
        recipe = library.definition(name)
        nodes = of_machine(targets.load(recipe.target).node.architecture)
        if (
            recipe.image.name == image.name and nodes in pinned
            and path.is_relative_to(paths.repository()) and recipe.image.digest != pinned
        ):
            texts[path] = with_digests(path, pinned)
    for path, text in texts.items():
        write_atomic(path, text)
    return list(texts)


def with_digests(path: Path, pinned: Mapping[Architecture, str]) -> str:
    """Return the text of the recipe at `path` with these digests; nothing else is changed.

    Raises:
        UsageError: The lines of the image have a comment, which would be lost.
    """
    text = path.read_text(encoding="utf-8")
    recipe = strict.load(Recipe, path)
    choice = recipe.image.model_copy(update={"digest": dict(pinned)})
    kept = choice.model_dump(mode="json", exclude_defaults=True)
    first, last = _lines_of(text, "image")
    lines = text.splitlines(keepends=True)
    if "#" in "".join(lines[first:last]):
        raise UsageError(f"{path}: the lines of 'image' have a comment, which would be lost",
                         code="file-invalid", hint="move the comment above 'image'")
    lines[first:last] = [yaml.safe_dump({"image": kept}, sort_keys=False, width=200)]
    return "".join(lines)


def _lines_of(text: str, key: str) -> tuple[int, int]:
    """Return the index of the first line of a top-level key, and of the line after its value."""
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(document, yaml.MappingNode)  # noqa: S101 - the recipe was read before
    [(name, value)] = [pair for pair in document.value if pair[0].value == key]
    return name.start_mark.line, _last_line(value) + 1


def _last_line(node: yaml.Node) -> int:
    """Return the index of the last line of a YAML value, without blank lines after the value."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        return max(_last_line(value) for _, value in node.value)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return max(map(_last_line, node.value))
    return int(node.end_mark.line)
