"""The dependency rules of the design, checked over the imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran import paths

ROOT = paths.repository()
PACKAGE = ROOT / "src/trimaran"
TOOL = sorted(PACKAGE.rglob("*.py"))
APPS = sorted((ROOT / "apps").glob("*/src/**/*.py"))
APP_PACKAGES = {path.name for path in (ROOT / "apps").glob("*/src/*") if path.is_dir()}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def faults(name: str, source: str) -> list[str]:
    """Return the rules of the tool that the module `name` (path in the package) breaks."""
    tree = ast.parse(source)
    used = set(imports(tree))
    found = []
    if {module.split(".")[0] for module in used} & {"torch", "tensorflow", "nvidia"}:
        found.append(f"{name} imports a framework: the tool runs on a login node without one")
    if name != "process.py" and used & {"subprocess", "os.system", "os.popen", "pty"}:
        found.append(f"{name} starts processes: only process.py does")
    called = set(calls(tree))
    # spython_build.py is a program of its own, which an engine starts as a child.
    prints = name.startswith("cli/") or name in {"terminal.py", "engines/spython_build.py"}
    if not prints and called & {"print", "sys.exit", "exit"}:
        found.append(f"{name} prints or exits: only cli/ and terminal.py do")
    if called & {"Console", "print"} or (name != "cli/common.py" and "typer.echo" in called):
        found.append(f"{name} prints what may steer a terminal: terminal.Screen and say() do not")
    if name != "parsing.py" and called & {"json.loads", "json.load", "yaml.load", "yaml.safe_load"}:
        found.append(f"{name} reads without limits: parsing.py does it")
    return found


def app_faults(package: str, source: str) -> list[str]:
    """Return the rules of the apps that a module of `package` breaks."""
    used = {module.split(".")[0] for module in imports(ast.parse(source))}
    others = APP_PACKAGES - {package, "trainkit"}
    found = []
    if "trimaran" in used:
        found.append(f"{package} imports trimaran, which is not in the image")
    if used & others:
        found.append(f"{package} imports another app")
    return found


@pytest.mark.parametrize("name", [str(path.relative_to(PACKAGE)) for path in TOOL])
def test_tool_module_keeps_the_rules(name: str) -> None:
    assert faults(name, (PACKAGE / name).read_text()) == []


@pytest.mark.parametrize("path", APPS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_app_module_keeps_the_rules(path: Path) -> None:
    package = path.relative_to(ROOT / "apps").parts[2]
    assert app_faults(package, path.read_text()) == []


def test_both_kinds_of_modules_were_found() -> None:
    assert len(TOOL) > 10
    assert {"trainkit", "resnet_imagenet"} <= APP_PACKAGES
    assert APPS


@pytest.mark.parametrize(
    "source",
    ["import torch", "from tensorflow import keras", "import subprocess", "from os import system",
     "print(1)", "import sys\nsys.exit(1)", "typer.echo(1)", "Console()", "json.loads(text)"],
)
def test_a_broken_rule_of_the_tool_is_found(source: str) -> None:
    assert faults("recipes.py", source)


@pytest.mark.parametrize("source", ["import trimaran.cli", "from trimaran import paths"])
def test_a_broken_rule_of_the_apps_is_found(source: str) -> None:
    assert app_faults("resnet_imagenet", source)
    assert app_faults("trainkit", "import resnet_imagenet.model")
