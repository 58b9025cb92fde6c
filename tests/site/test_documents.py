"""Check each command in documents that are also pages of the site, without executing it.

All words of a command are parsed, but its action is not executed. Other tests execute the longer
actions of these documents (whole trainings, pushes, images for GPUs);
`tests/integration/test_documents.py` checks the words for Apptainer and buildah.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import commandlines
from documents import DOCUMENTS, ROOT, commands, inside, made, mentions, scripts
from showncommands import Block, tried
from trimaran.recipes import cards

LAUNCHERS = ("torchrun", "mpirun", "horovodrun")
OF_THE_SHELL = ("cd", "export", "mkdir", "sed", "sh")
OF_ENGINES = ("apptainer", "buildah")
APPS = {
    yaml.safe_load(card.read_text())["module"]: card.parent.name
    for card in ROOT.glob("apps/*/app.yaml")
}
INCOMPLETE = re.compile(r"|Usage: .*|Option '.*' requires an argument\.", re.DOTALL)
"""Error messages of the command line that are allowed, because prose shortens commands."""
SHOWN = [(document, words) for document in DOCUMENTS for words in commands(document)]


def of_python(words: list[str]) -> str | None:
    """Return what is wrong with the arguments of a documented `python` command, or None."""
    if words[0] == "-m":
        return of_pytest(words[2:]) if words[1] == "pytest" else of_app(APPS[words[1]], words[2:])
    path = ROOT / words[0].replace("/mnt/", "")
    if not path.is_file():
        return f"no {path}"
    return of_benchmark(path, words[1:]) if path.parent.name == "benchmarks" else None


def of_pytest(words: list[str]) -> str | None:
    return next((f"no {path}" for path in words if not (ROOT / path).exists()), None)


def of_app(app: str, words: list[str]) -> str | None:
    """Return the error in a command of an app that a document shows, or None.

    `words` are the verb (subcommand) and its options with their values; all of them are checked.
    """
    verb, given = words[0], cards.verbs(app)[words[0]].options
    for part in " ".join(["", *words[1:]]).split(" --")[1:]:
        option, *values = part.split()
        name = option if option in given else option.removeprefix("no-")
        if name not in given:
            return f"{app} {verb} has no --{option}"
        for value in [True] if given[name].type == "boolean" else values or [""]:
            if (wrong := given[name].fault(value)) is not None:
                return f"--{name} {wrong}"
    return None


def of_benchmark(program: Path, words: list[str]) -> str | None:
    parser: argparse.ArgumentParser = importlib.import_module(program.stem).parser()
    parser.exit_on_error = False
    try:
        parser.parse_args(words)
    except (argparse.ArgumentError, SystemExit) as error:
        return str(error)
    return None


def of_engine(app: str | None, words: list[str]) -> str | None:
    """Return the error in the command that a documented `apptainer` or `buildah` command runs.

    Only a `python` command or a verb of `app` is checked; the result is None for other
    commands, and for a command without an error.

    Args:
        app: the app whose document has the command, or None.
        words: the whole command, beginning with the name of the engine.
    """
    within = inside(words)
    if not within or within[0] not in ("python", *(cards.verbs(app) if app else ())):
        return None
    return fault(app, within) if within[0] == "python" else of_app(str(app), within)


def fault(app: str | None, words: list[str]) -> str | None:
    """Return the error in a command in the document of `app`, or None."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "trimaran":
        return commandlines.fault(shlex.join(rest), made())
    if program == "make":
        return None if f"\n{rest[0]}:" in (ROOT / "Makefile").read_text() else f"no {rest[0]}"
    if program in LAUNCHERS:
        return of_python(rest[rest.index("-m"):])
    if program == "python":
        return of_python(rest)
    if program == "pytest":
        return of_pytest(rest)
    if program in OF_ENGINES:
        return of_engine(app, words)
    known = program in (*OF_THE_SHELL, "pip") or re.match(r"\w+=", words[0])
    return None if known else f"nobody tries {program}"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def app_of(document: str) -> str | None:
    return next((app for app in APPS.values() if document == f"apps/{app}/README.md"), None)


@pytest.mark.parametrize(("document", "words"), SHOWN, ids=lambda one: " ".join(one)[:60])
def test_a_command_of_a_document_is_taken(document: str, words: list[str]) -> None:
    assert fault(app_of(document), words) is None, words


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_shell_reads_them_and_none_is_outside_of_a_block(document: str) -> None:
    for script in scripts(document):
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    text = (ROOT / document).read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    programs = "|".join(("trimaran", "python", "make", *LAUNCHERS, *OF_ENGINES))
    assert not re.search(rf"^(?:    |\t)\S*(?:{programs}) ", prose, re.MULTILINE)
    assert not re.search(r"^```(?:bash|shell)", text, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_command_that_prose_mentions_is_there(document: str) -> None:
    for line in mentions(document):
        wrong = commandlines.fault(line, made())
        assert wrong is None or INCOMPLETE.fullmatch(wrong), f"trimaran {line}: {wrong}"


@pytest.mark.parametrize("name", made())
def test_an_image_that_a_document_has_made_can_be_rendered(name: str, own_place: Path) -> None:
    shutil.copytree(ROOT / "containers", own_place / "containers")
    for path in ROOT.iterdir():
        if path.name not in ("containers", ".git"):
            (own_place / path.name).symlink_to(path)
    no_build = 'trimaran() { [ "$1" = build ] || command trimaran "$@"; }'
    tried([Block("executed", (), (), f"{no_build}\n{made()[name]}")], own_place,
          TRIMARAN_ROOT=str(own_place))
    assert (own_place / "containers/apps" / name / "image.def").is_file()


@pytest.mark.parametrize(("document", "line", "why"), [
    ("README.md", "trimaran run x --engien host", "engien"),
    ("README.md", "trimaran run no/such-recipe", "unknown recipe"),
    ("README.md", "trimaran run resnet-imagenet/cpu-quickstart --set modle=resnet50", "model"),
    ("containers/README.md", "trimaran build torch-cpuu", "unknown image"),
    ("recipes/README.md", "trimaran data get nothing", "unknown data set"),
    ("README.md", "make quikstart", "no quikstart"),
    ("README.md", "conda install x", "nobody tries conda"),
    ("README.md", "pytest apps/resnet", "no "),
    ("benchmarks/README.md", "python benchmarks/tool_time.py --rounds many", "many"),
    ("benchmarks/README.md", "python benchmarks/tool_tim.py", "no "),
    ("apps/chexnet/README.md", "python -m chexnet train --epochs many", "a whole number"),
    ("apps/chexnet/README.md", "mpirun -n 2 python -m chexnet train … --strategy dpp", "one of"),
    ("apps/chexnet/README.md", "apptainer run IMAGE.sif evaluate --ten-corp", "no --ten-corp"),
    ("apps/chexnet/README.md", "apptainer exec $SIF python -m chexnet plot --oot x", "no --oot"),
])
def test_a_wrong_command_is_found(document: str, line: str, why: str) -> None:
    assert why in (fault(app_of(document), shlex.split(line)) or "")
