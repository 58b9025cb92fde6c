"""`make setup` repairs the result of an interrupted `make setup`, and prints what it does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trimaran import paths

# Stands for Python: makes environments, and installs nothing where pip is not.
PYTHON = """\
#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
"-m venv"*)
    for folder; do :; done
    rm -rf "$folder"
    mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python"
    touch "$folder/pip"
    ;;
"-m pip"*)
    [ -e "$(dirname "$0")/../pip" ] || { echo "No module named pip" >&2; exit 1; }
    case "$*" in *"$FAIL"*) kill -9 $$ ;; esac
    ;;
esac
"""


@pytest.fixture
def made(own_place: Path) -> Path:
    """Create a checkout that contains only the Makefile and the files that its rules read."""
    root = paths.repository()
    (own_place / "scripts").symlink_to(root / "scripts")
    (own_place / "Makefile").symlink_to(root / "Makefile")
    (own_place / "requirements").mkdir()
    locks = [f"requirements/{one}.lock" for one in ("tool", "dev", "site")]
    for name in ("pyproject.toml", *locks):
        (own_place / name).touch()
    (own_place / "python").write_text(PYTHON)
    (own_place / "python").chmod(0o755)
    return own_place


def make(place: Path, target: str, fail: str = "nothing") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", target, f"PYTHON={place / 'python'}"], cwd=place, capture_output=True, text=True,
        env={**os.environ, "CALLS": str(place / "calls"), "FAIL": fail}, check=False,
    )


def calls(place: Path) -> list[str]:
    file = place / "calls"
    found = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line.removeprefix("-m ").split(" --")[0] for line in found]


def test_it_sets_up_once_and_then_does_nothing(made: Path) -> None:
    assert make(made, "dev").returncode == 0
    assert calls(made) == ["venv", "pip install -q", "pip install -q", "pip install -q"]
    assert make(made, "dev").returncode == 0
    assert calls(made) == []
    (made / "requirements/tool.lock").write_text("another")
    assert make(made, "setup").returncode == 0
    assert "venv" not in calls(made)


def test_half_an_environment_is_made_anew(made: Path) -> None:
    (made / ".venv/bin").mkdir(parents=True)
    (made / ".venv/bin/python").write_text(PYTHON)
    (made / ".venv/bin/python").chmod(0o755)
    done = make(made, "setup")
    assert done.returncode == 0, done.stderr
    assert calls(made)[0] == "venv"


@pytest.mark.parametrize("cut_off", ["tool.lock", "-e .", "dev.lock"])
def test_an_installation_that_was_cut_off_begins_anew(made: Path, cut_off: str) -> None:
    assert make(made, "dev", cut_off).returncode != 0
    calls(made)
    assert make(made, "dev").returncode == 0
    assert calls(made) == ["venv", "pip install -q", "pip install -q", "pip install -q"]
    # The same while an older installation is brought up to date.
    (made / "pyproject.toml").write_text("another")
    assert make(made, "dev", cut_off).returncode != 0
    calls(made)
    assert make(made, "dev").returncode == 0
    assert calls(made)[0] == "venv"


def test_it_says_what_goes_on(made: Path) -> None:
    assert "installing the tool" in make(made, "setup").stdout


def test_all_tests_say_what_each_part_took_also_when_one_fails(tmp_path: Path) -> None:
    (tmp_path / "make").write_text("#!/bin/sh\n[ \"$2\" != bad ]\n")
    (tmp_path / "make").chmod(0o755)
    words = ["sh", str(paths.repository() / "scripts/parts.sh"), str(tmp_path / "make")]

    def run(*targets: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *targets], capture_output=True, text=True, check=False)

    good = run("lint:1", "unit:2")
    assert good.returncode == 0
    assert [line.split()[0] for line in good.stdout.splitlines()[-2:]] == ["lint", "unit"]
    bad = run("bad:1", "unit:2", "bad:1")
    assert bad.returncode == 1
    assert [line.split()[0] for line in bad.stdout.splitlines()[-4:-1]] == ["bad", "unit", "bad"]
    assert bad.stdout.splitlines()[-1] == "failed: bad bad"
