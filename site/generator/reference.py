"""Generate the reference: command line, error codes, schemas, and libraries."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from generator import markdown
from generator.pages import Page, fill
from trimaran import cli, paths
from trimaran.doctor import checks
from trimaran.error_codes import CODES
from trimaran.inventory import catalog
from trimaran.run import fabrics
from trimaran.run.fabrics import Accelerator, Setting

FOLDER = "reference"
SCHEMAS = {
    "recipes/schema.json":
        ("recipe-schema", "Schema of recipes", "recipes/APP/TARGET-PURPOSE.yaml"),
    "apps/schema.json": ("app-schema", "Schema of an app's card", "apps/APP/app.yaml"),
}


def pages() -> list[Page]:
    """Return the pages of the reference that are generated from the code."""
    schemas = map(_schema, catalog.SCHEMAS)
    own = [_command_line(), _error_codes(), _doctor(), _fabrics()]
    return [*own, *schemas, *_library("shards"), *_library("trainkit")]


def _command_line() -> Page:
    page = f"{FOLDER}/cli.md"
    root = typer.main.get_command(cli.app)
    commands = [_command(name, command) for name, command in _commands(root, "trimaran")]
    text = fill("cli.md.j2", page, commands=commands)
    return Page(page, text, "Command line")


def _error_codes() -> Page:
    page = f"{FOLDER}/error-codes.md"
    text = fill("error-codes.md.j2", page, rows=_codes(CODES), apps=_codes(_codes_of_apps()))
    return Page(page, text, "Error codes")


ABOUT = {
    "machine": "The machine itself, and engines other than Apptainer.",
    "engine": "Apptainer, what it needs from the kernel, and GPUs with their drivers.",
    "ranks": "What starts the ranks: batch system, PMI of srun, MPI of the host.",
    "limits": "Limits of a job, and settings of processors and memory.",
    "places": "Disks, folders, data and time.",
    "network": "Devices of the network, and what the image has for them.",
    "measure": "What `--measure` measures on each node.",
}
"""Group of findings of `trimaran doctor` -> description of the group."""


def _doctor() -> Page:
    page = f"{FOLDER}/doctor.md"
    groups = [(name, ABOUT[name], _findings(name)) for name in checks.ORDER]
    text = fill("doctor.md.j2", page, groups=[one for one in groups if one[2]])
    return Page(page, text, "Findings of doctor")


def _findings(group: str) -> str:
    """Return the table of the findings in a group; "" if the group has no findings."""
    rows = [
        [f"`{name}`", known.level.upper(), known.meaning, known.remedy or "-", known.tested]
        for name, known in checks.FINDINGS.items() if known.group == group
    ]
    columns = ["ID", "at worst", "what is checked", "remedy", "tested with"]
    return markdown.table(columns, rows) if rows else ""


def _fabrics() -> Page:
    page = f"{FOLDER}/fabrics.md"
    profiles = fabrics.PROFILES.items()
    text = fill(
        "fabrics.md.j2", page,
        settings=markdown.table(
            ["fabric", "variable", "images", "forces", "source"],
            ([f"`{name}`", *_setting(one)] for name, profile in profiles
             for one in profile.settings),
        ),
        logging=markdown.table(
            ["variable", "images", "source"],
            ([variable, images, source]
             for variable, images, _, source in map(_setting, fabrics.LOGGING)),
        ),
        libraries=markdown.table(
            ["fabric", "library", "images", "where", "source"],
            ([f"`{name}`", f"`{one.name}`" + ("" if one.needed else " (optional)"),
              _images(one.on), _codes_of(one.places) or "in the image", _source(one.source)]
             for name, profile in profiles for one in profile.libraries),
        ),
        devices=[(name, _codes_of(profile.devices) or "none") for name, profile in profiles],
    )
    return Page(page, text, "Fabrics")


def _setting(one: Setting) -> list[str]:
    return [f"`{one.name}={one.value}`", _images(one.on), "yes" if one.forces else "",
            _source(one.source)]


def _images(on: Collection[Accelerator]) -> str:
    """Return the images for which a fabric sets a variable or binds a library, as text.

    The text is "all", or the kinds of accelerators, such as "AMD".
    """
    if set(on) == set(fabrics.ACCELERATORS):
        return "all"
    return ", ".join({"nvidia": "NVIDIA", "amd": "AMD", "cpu": "CPU"}[name] for name in on)


def _codes_of(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _source(text: str) -> str:
    """Return sources as Markdown; addresses become links with the name of the host."""
    return re.sub(r"https://([^/ ]+)\S*", lambda found: f"[{found[1]}]({found[0]})", text)


def _codes(codes: Mapping[str, str]) -> str:
    rows = [[f"`{code}`", meaning] for code, meaning in sorted(codes.items())]
    return markdown.table(["code", "meaning"], rows)


def _codes_of_apps() -> Mapping[str, str]:
    """Return the error codes of trainkit, which is not installed where the site is built."""
    path = paths.repository() / "apps/trainkit/src/trainkit/error_codes.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    [table] = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    codes: dict[str, str] = ast.literal_eval(table)
    return codes


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, child in getattr(command, "commands", {}).items():
        yield from _commands(child, f"{name} {word}")


def _command(name: str, command: Any) -> dict[str, object]:
    context = command.make_context(name, [], resilient_parsing=True)
    about, _, example = str(command.help or "").partition("Example: ")
    rows = []
    for one in command.params:
        record = one.get_help_record(context)
        if one.param_type_name == "argument":
            rows.append([f"`{one.metavar or one.name.upper()}`", str(one.help or "")])
        elif record and not record[0].startswith(("--install", "--show")):
            rows.append([f"`{record[0]}`", record[1]])
    return {
        "name": name, "about": _paragraphs(about), "example": example.strip().splitlines()[:1],
        "usage": " ".join([name, *command.collect_usage_pieces(context)]),
        "rows": markdown.table(["argument or option", "meaning"], rows) if rows else "",
    }


def _paragraphs(text: str) -> str:
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(part for part in parts if part).replace("<", "&lt;")


def _schema(file: str) -> Page:
    name, title, place = SCHEMAS[file]
    page = f"{FOLDER}/{name}.md"
    schema = json.loads((paths.repository() / file).read_text(encoding="utf-8"))
    models = {schema.get("title", title): schema, **schema.get("$defs", {})}
    parts = [
        {"name": model, "about": _paragraphs(str(known.get("description", ""))),
         "rows": markdown.table(["key", "takes", "default", "meaning"], _keys(known))}
        for model, known in models.items() if "properties" in known
    ]
    text = fill("schema.md.j2", page, title=title, parts=parts, place=place,
                raw=markdown.link(page, f"files/{file}"))
    files = {f"files/{file}": (paths.repository() / file).read_bytes()}
    return Page(page, text, title, files=files)


def _keys(model: Mapping[str, Any]) -> Iterator[list[str]]:
    required = set(model.get("required", ()))
    for key, known in model["properties"].items():
        default = "required" if key in required else f"`{json.dumps(known.get('default'))}`"
        yield [f"`{key}`", _kind(known), default, str(known.get("description", ""))]


def _kind(known: Mapping[str, Any]) -> str:
    """Return the type of a key from its JSON schema, with links to models on the same page."""
    if "$ref" in known:
        model = str(known["$ref"]).rpartition("/")[2]
        return f"[{model}](#{model.lower()})"
    if "anyOf" in known:
        return " or ".join(dict.fromkeys(_kind(one) for one in known["anyOf"]))
    if "enum" in known:
        return ", ".join(f"`{value}`" for value in known["enum"])
    if "const" in known:
        return f"`{json.dumps(known['const'])}`"
    kind = str(known.get("type", "anything"))
    if kind == "array":
        return f"list of {_kind(known['items'])}"
    if kind == "object" and isinstance(known.get("additionalProperties"), Mapping):
        return f"mapping to {_kind(known['additionalProperties'])}"
    pattern = known.get("pattern")
    return f"{kind} like `{pattern}`" if pattern else kind


def _library(package: str) -> list[Page]:
    """Return a page for each module or subpackage of a package; mkdocstrings inserts docstrings."""
    root = paths.repository() / "apps" / package / "src" / package
    parts: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        module = _module(root, path)
        if "." in module and not any(word.startswith("_") for word in module.split(".")):
            parts.setdefault(_part(module), []).append(module)
    return [
        Page(
            f"{FOLDER}/{package}/{part}.md",
            f"# {package}.{part}\n\n" + "\n\n".join(f"::: {module}" for module in modules) + "\n",
            f"{package}.{part}", "",
        )
        for part, modules in parts.items()
    ]


def _module(root: Path, path: Path) -> str:
    words = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def _part(module: str) -> str:
    """Return the second word of a module's name, such as "data" for "trainkit.data.order"."""
    return module.split(".")[1]
