"""The dependency rules of the design, checked for all imports."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran import paths

ROOT = paths.repository()
PACKAGE = ROOT / "src/trimaran"
TOOL = sorted(PACKAGE.rglob("*.py"))
APPS = sorted((ROOT / "apps").glob("*/src/**/*.py"))
APP_HOUSES = sorted(path.parent for path in (ROOT / "apps").glob("*/src/*/__init__.py"))
APP_PACKAGES = {path.name for path in APP_HOUSES}
FRAMEWORKS = {"torch", "tensorflow", "nvidia"}


BELOW: dict[str, set[str]] = {"ground": set()}
"""Package -> the packages in the layers below it; it may import no other package of the tool."""
for name, *below in (
    ("net", "ground"),
    ("data", "net"), ("recipes", "data"),
    ("images", "net"), ("launch", "ground"), ("engines", "images", "launch"),
    ("provenance", "engines"),
    ("run", "provenance", "recipes"), ("verdict", "run"), ("report", "verdict"),
    ("publishing", "verdict"), ("bundles", "run"), ("cluster", "report"), ("compare", "report"),
    ("evidence", "report"), ("plan", "report"),
    ("inventory", "report"), ("doctor", "cluster"), ("tune", "compare"),
    ("cli", "bundles", "doctor", "evidence", "inventory", "plan", "publishing",
     "tune"),
):
    BELOW[name] = {*below}.union(*(BELOW[one] for one in below))


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the full names of everything that a module of `package` imports."""
    parts = package.split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) + 1 - node.level] if node.level else []
            module = ".".join(filter(None, [*above, node.module]))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def package_of(name: str, house: Path = PACKAGE) -> str:
    """Return the package to which relative imports of the module `name` refer.

    `name` is a path in `house`, the folder of the top-level package.
    """
    return ".".join((house.name, *Path(name).parts[:-1]))


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def faults(name: str, source: str) -> list[str]:
    """Return the rules of the tool that the module `name` (path in the package) breaks."""
    tree = ast.parse(source)
    used = set(imports(tree, package_of(name)))
    found = []
    first = {module.split(".")[0] for module in used}
    if first & FRAMEWORKS:
        found.append(f"{name} imports a framework: the tool runs on a login node without one")
    if first & (APP_PACKAGES - {"shards"}):
        found.append(f"{name} imports an app: they share shards only")
    if name != "process.py" and used & {"subprocess", "os.system", "os.popen", "pty"}:
        found.append(f"{name} starts processes: only process.py does")
    called = set(calls(tree))
    # spython_build.py is a program of its own, which an engine starts as a child.
    prints = name.startswith("cli/") or name == "engines/spython_build.py"
    if not prints and called & {"print", "sys.exit", "exit"}:
        found.append(f"{name} prints or exits: only cli/ does")
    if called & {"Console", "print"} or (name != "cli/common.py" and "typer.echo" in called):
        found.append(f"{name} prints what may steer a terminal: terminal.Screen and say() do not")
    if name != "parsing.py" and called & {"json.loads", "json.load", "yaml.load", "yaml.safe_load"}:
        found.append(f"{name} reads without limits: parsing.py does it")
    return found


def room(module: str) -> str:
    """Return the subpackage of `trimaran` that contains `module`, or "ground" if none does.

    `module` is the name of a module without `trimaran.`.
    """
    first = module.split(".")[0]
    return first if (PACKAGE / first).is_dir() else "ground"


def modules_of(name: str, source: str, house: Path = PACKAGE) -> set[str]:
    """Return the modules in the folder `house` that the module `name` imports.

    Imports for type hints are included.

    Args:
        name: path of the module in `house`.
        source: text of the module.
        house: the folder of a top-level package.
    """
    found = set()
    for module in imports(ast.parse(source), package_of(name, house)):
        below = module.removeprefix(house.name).removeprefix(".")
        place = house / below.replace(".", "/")
        is_module = place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
        if module.startswith(f"{house.name}.") and is_module:
            found.add(below)
    # `from a.b import c` names a.b, too: of a package, that is its own `__init__`.
    return {one for one in found if not any(other.startswith(f"{one}.") for other in found)
            or (house / one.replace(".", "/")).with_suffix(".py").is_file()}


def order_faults(name: str, source: str) -> list[str]:
    """Return the imports of the module `name` (path in the package) that the rules forbid."""
    own = room(name.removesuffix(".py").replace("/", "."))
    used = {room(module) for module in modules_of(name, source)}
    return [f"{own} imports {other}" for other in sorted(used - {own} - BELOW[own])]


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, or an empty list."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def app_faults(package: str, source: str) -> list[str]:
    """Return the import rules for apps that a module of the app package `package` breaks."""
    used = {module.split(".")[0] for module in imports(ast.parse(source), package)}
    below = {"shards": set(), "trainkit": {"shards"}}.get(package, {"shards", "trainkit"})
    found = []
    if "trimaran" in used:
        found.append(f"{package} imports trimaran, which is not in the image")
    if used & (APP_PACKAGES - {package} - below):
        found.append(f"{package} imports another app, or what stands on it")
    if package == "shards" and used & (FRAMEWORKS | {"pydantic"}):
        found.append("shards imports what the tool or the images of apps do not have")
    return found


@pytest.mark.parametrize("name", [str(path.relative_to(PACKAGE)) for path in TOOL])
def test_tool_module_keeps_the_rules(name: str) -> None:
    assert faults(name, (PACKAGE / name).read_text()) == []


@pytest.mark.parametrize("name", [str(path.relative_to(PACKAGE)) for path in TOOL])
def test_imports_go_down_only(name: str) -> None:
    assert order_faults(name, (PACKAGE / name).read_text()) == []


def test_every_package_has_its_place_in_the_order_and_says_what_it_is_for() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages | {"ground"} == set(BELOW)
    for name in packages:
        assert ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text()))


def test_tests_lie_in_the_folder_of_their_package() -> None:
    packages = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py")}
    folders = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")}
    own = {folder for folder in folders if folder.parts[:1] not in
           {("integration",), ("site",), ("robustness",), ("toys",)}}
    assert own <= packages


def test_the_guide_shows_the_same_house() -> None:
    rows = re.findall(r"^\| (?!package )`?(\w+|the ground)/?`? \| .* \| (.*) \|$",
                      (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    shown = {name.removeprefix("the "): re.findall(r"\w+", below) for name, below in rows}
    assert set(shown) == set(BELOW)
    for name, below in shown.items():
        direct = {one for one in below if one in BELOW}
        assert BELOW[name] == direct.union(*(BELOW[one] for one in direct))


@pytest.mark.parametrize("house", [PACKAGE, *APP_HOUSES], ids=lambda house: house.name)
def test_no_module_imports_itself_by_way_of_others(house: Path) -> None:
    arrows = {}
    for path in house.rglob("*.py"):
        place = path.relative_to(house)
        name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        arrows[name] = modules_of(str(place), path.read_text(), house) - {name}
    assert any(arrows.values())
    assert circle(arrows) == []


def test_the_ground_is_small() -> None:
    flat = [path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]
    assert len(flat) <= 14, "a module of one concern belongs to that one's package"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("images/lock.py", "from trimaran.engines import store"),
        ("data/cache.py", "from trimaran.recipes.library import load"),
        ("bundles/pack.py", "from trimaran.inventory import catalog"),
        ("provenance/audit.py", "from trimaran.report import report"),
        ("recipes/library.py", "from trimaran.images.definition import Image"),
        ("files.py", "from trimaran.net import web"),
        ("engines/store.py", "if TYPE_CHECKING:\n    from trimaran.cli import common"),
        ("engines/store.py", "from ..cli import common"),
        ("data/packing/packer.py", "from ...report.report import write"),
        ("files.py", "from .net import web"),
    ],
)
def test_an_import_that_is_turned_round_is_found(name: str, line: str) -> None:
    assert order_faults(name, line)


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


@pytest.mark.parametrize("path", APPS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_app_module_keeps_the_rules(path: Path) -> None:
    package = path.relative_to(ROOT / "apps").parts[2]
    assert app_faults(package, path.read_text()) == []


def test_both_kinds_of_modules_were_found() -> None:
    assert len(TOOL) > 10
    assert {"shards", "trainkit", "resnet_imagenet"} <= APP_PACKAGES
    assert APPS


@pytest.mark.parametrize(
    "source",
    ["import torch", "from tensorflow import keras", "import trainkit.data", "import subprocess",
     "from os import system",
     "print(1)", "import sys\nsys.exit(1)", "typer.echo(1)", "Console()", "json.loads(text)"],
)
def test_a_broken_rule_of_the_tool_is_found(source: str) -> None:
    assert faults("recipes.py", source)


@pytest.mark.parametrize("source", ["import trimaran.cli", "from trimaran import paths"])
def test_a_broken_rule_of_the_apps_is_found(source: str) -> None:
    assert app_faults("resnet_imagenet", source)
    assert app_faults("trainkit", "import resnet_imagenet.model")
    assert app_faults("shards", "import trainkit.exits")
    assert app_faults("shards", "import torch")
    assert not app_faults("trainkit", "from shards.kinds import Kind")
    assert not app_faults("resnet_imagenet", "from . import model")
