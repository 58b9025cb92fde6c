"""`scripts/app_tests.py` finds apps by their app.yaml, and runs tests with the app's framework."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import app_tests as script


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create a checkout with an app of each framework, and a toy app in the folder of the tests."""
    root = tmp_path / "tree"
    app(root, "apps/pictures", "framework: torch\n")
    app(root, "apps/words", "title: Words\nframework: tensorflow\n")
    app(root, "tests/toys/apps/toy", "framework: tensorflow\n")
    for name in ("shards", "trainkit"):
        (root / "apps" / name).mkdir()
        (root / "apps" / name / "pyproject.toml").touch()
    (root / "requirements").mkdir()
    (root / "requirements/apps-test.lock").touch()
    for name in ("torch", "tensorflow"):
        lock = root / f"containers/frameworks/{name}-cpu/requirements.lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
    return root


def app(root: Path, folder: str, text: str) -> None:
    (root / folder).mkdir(parents=True)
    (root / folder / "app.yaml").write_text(text)
    (root / folder / "pyproject.toml").touch()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record all commands instead of running them; only empty environments are created."""
    found: list[list[str]] = []

    def record(words: Sequence[str], **more: Any) -> Any:
        found.append([word.removeprefix(f"{more['cwd']}/") for word in words])
        if "venv" in words:
            Path(words[-1]).mkdir(exist_ok=True)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(script.subprocess, "run", record)
    return found


def test_apps_belong_to_the_framework_of_their_card(tree: Path) -> None:
    found = {one.name: one for one in script.frameworks(tree)}
    assert list(found) == ["tensorflow", "torch"]
    assert found["tensorflow"].apps == (Path("apps/words"), Path("tests/toys/apps/toy"))
    assert found["torch"].others == ("tensorflow",)


@pytest.mark.parametrize(("text", "said"), [
    ("title: no framework\n", "'framework' must be a name"),
    ("framework: ../torch\n", "'framework' must be a name"),
    ("framework: jax\n", "no containers/frameworks/jax-cpu/requirements.lock"),
    ("framework: [", "app.yaml"),
])
def test_a_card_that_names_no_framework_is_an_error(
    text: str, said: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "apps/words/app.yaml").write_text(text)
    assert script.main(["test"], tree) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "apps/words/app.yaml" in error


def test_an_environment_is_made_once(tree: Path, calls: list[list[str]]) -> None:
    assert script.main(["setup"], tree) == 0
    assert sum("venv" in words for words in calls) == 2
    calls.clear()
    assert script.main(["setup"], tree) == 0
    assert calls == []
    # Another app is linked; only other packages need another environment.
    (tree / "apps/words/pyproject.toml").write_text("[project]\n")
    assert script.main(["setup"], tree) == 0
    assert [words[-1] for words in calls] == ["tests/toys/apps/toy"]
    calls.clear()
    (tree / "containers/frameworks/torch-cpu/requirements.lock").write_text("torch==3\n")
    assert script.main(["setup"], tree) == 0
    assert calls[0][-1] == ".venv-apps-torch"


def test_the_environment_of_one_framework_can_be_asked_for(
    tree: Path, calls: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["setup", "torch"], tree) == 0
    assert [words[-1] for words in calls if "venv" in words] == [".venv-apps-torch"]
    assert script.main(["setup", "jax"], tree) == 2
    error = capsys.readouterr().err
    assert "jax; use tensorflow or torch" in error


def test_what_the_image_of_an_app_brings_is_there_too(tree: Path, calls: list[list[str]]) -> None:
    own = Path("containers/apps/words-tensorflow-cpu/requirements.lock")
    (tree / own).parent.mkdir(parents=True)
    (tree / own).write_text("brought==1\n")
    assert script.main(["setup"], tree) == 0
    fetched = [words[2] for words in calls if "fetch" in words]
    assert fetched == ["tensorflow-cpu", "words-tensorflow-cpu", "torch-cpu"]
    assert sum(str(own) in words for words in calls) == 1


def test_each_framework_has_its_own_half_of_trainkit(tree: Path, calls: list[list[str]]) -> None:
    assert script.main(["test"], tree) == 0
    tested = [words[words.index("loadscope") + 1 :] for words in calls if "pytest" in words]
    assert {tuple(words[:2]) for words in tested} == {("-m", "not long")}
    assert [words[2:] for words in tested] == [
        ["--confcutdir=apps", "--ignore=apps/trainkit/tests/on_torch",
         "apps/trainkit/tests/on_tensorflow", "apps/words/tests"],
        ["--confcutdir=tests/toys/apps", "--ignore=apps/trainkit/tests/on_torch",
         "tests/toys/apps/toy/tests"],
        ["--confcutdir=apps", "--ignore=apps/trainkit/tests/on_tensorflow", "apps/trainkit/tests",
         "apps/pictures/tests"],
    ]
    (types,) = [words for words in calls if "mypy" in words and "/trainkit/torch/" in words]
    assert types[-3:] == ["apps/trainkit/src", "apps/words/src", "tests/toys/apps/toy/src"]
    calls.clear()
    assert script.main(["test", "--quick"], tree) == 0
    assert not any("mypy" in words for words in calls)
    quick = [words for words in calls if "pytest" in words]
    assert all("not slow" in words for words in quick)
    assert [[word for word in words if word.startswith("apps/trainkit")] for words in quick] == [
        ["apps/trainkit/tests/on_tensorflow"], ["apps/trainkit/tests"],
    ]


@pytest.mark.parametrize("failing", ["mypy", "pytest"])
def test_what_fails_stops_no_tests(
    tree: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    tested = []

    def status(words: Sequence[str], *_: object, **__: str) -> int:
        if "pytest" in words:
            tested.append(words[0])
        return int(failing in words)

    monkeypatch.setattr(script, "setup", lambda framework: None)
    monkeypatch.setattr(script, "status", status)
    assert script.main(["test"], tree) == 1
    assert len(set(tested)) == 2


def test_a_failure_is_the_end(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess("", -9)
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(SystemExit) as ended:
        script.main(["test"], tree)
    assert ended.value.code == 137


def test_a_test_runs_with_the_interpreter_of_its_app(tree: Path) -> None:
    def of(test: str) -> str:
        return str(script.interpreter(tree, Path(test)).relative_to(tree))

    assert of("tests/test_paths.py") == ".venv/bin/python"
    assert of("apps/words/tests/test_words.py") == ".venv-apps-tensorflow/bin/python"
    assert of("tests/toys/apps/toy/tests/test_toy.py") == ".venv-apps-tensorflow/bin/python"
    assert of("apps/shards/tests/test_a.py") == ".venv/bin/python"
    assert of("apps/trainkit/tests/on_torch/test_a.py") == ".venv-apps-torch/bin/python"
    assert of("apps/trainkit/tests/test_b.py").startswith(".venv-apps-")


def test_options_are_written_by_the_apps(tree: Path, calls: list[list[str]]) -> None:
    assert script.main(["options"], tree) == 0
    python = ".venv-apps-tensorflow/bin/python"
    assert [python, "-m", "trainkit.testing.describe", "apps/words"] in calls
