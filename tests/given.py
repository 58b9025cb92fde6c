"""What pages of the site presume: made in the folder where their commands are tried.

    python -m given NAME    # prints what the shell is told: the variables that the page has set

Each imports what it needs itself: some read definitions that a small checkout has not.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trimaran import paths

QUICKSTART = "resnet-imagenet/cpu-quickstart"
TRIMARAN = [sys.executable, "-c", "from trimaran.cli import main; main()"]
SECONDS = 120.0


def photos() -> str:
    """Make `photos`: images in folders of splits and classes."""
    from photos import folder

    folder(Path("photos"))
    return ""


def run() -> str:
    """Make `$RUN`: a quickstart that has ended."""
    import finished
    from trimaran.recipes import library

    directory = Path("runs", QUICKSTART, "1").absolute()
    finished.finish(directory, library.load(QUICKSTART), image=finished.SIF)
    return f"RUN={shlex.quote(str(directory))}"


def stopped() -> str:
    """Make `$RUN`: a quickstart that Ctrl-C has stopped."""
    directory = Path("runs", QUICKSTART, "1").absolute()
    words = ["run", QUICKSTART, "--engine", "apptainer", "--out", str(directory)]
    with subprocess.Popen([*TRIMARAN, *words], stdout=sys.stderr) as child:
        end = time.monotonic() + SECONDS
        while "mounted" not in _text(directory / "log.txt"):  # the small app is under way
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the run has not come to its app")
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
    return f"RUN={shlex.quote(str(directory))}"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def imagenet() -> str:
    """Make `official`: ImageNet's files in miniature, and a checkout that expects them."""
    import yaml

    from photos import TRUTH, official_tars
    from trimaran.files import md5

    source, root = paths.repository(), Path("checkout").absolute()
    root.mkdir()
    for path in source.iterdir():
        if path.name != "recipes":
            (root / path.name).symlink_to(path)
    shutil.copytree(source / "recipes", root / "recipes")
    official = official_tars(Path("official"), root)
    file = root / "recipes/data/imagenet-2012.yaml"
    contract = yaml.safe_load(file.read_text())
    contract["files"] = {path.name: {"md5": md5(path)} for path in official.iterdir()}
    contract["splits"] = {"train": {"samples": 9}, "val": {"samples": len(TRUTH)}}
    file.write_text(yaml.safe_dump(contract))
    return f"export TRIMARAN_ROOT={shlex.quote(str(root))}"


def clone() -> str:
    """Make `trimaran`, the clone, and a stand-in for pipx: pip prepares it and installs nothing."""
    from jobplaces import write_program

    Path("trimaran").symlink_to(paths.repository())
    Path("bin").mkdir()
    write_program(Path("bin/pipx"), f"""#!/bin/sh
[ $# = 2 ] && [ "$1" = install ] || exit 2
exec {shlex.quote(sys.executable)} -m pip install --dry-run --no-deps --no-build-isolation \\
    --ignore-installed "$2"
""")
    return f"export PATH={shlex.quote(str(Path('bin').absolute()))}:$PATH"


def dry() -> str:
    """Have make say what it would do, and do nothing."""
    return "export MAKEFLAGS=n"


def ended() -> str:
    """Wait until no job is queued or runs."""
    end = time.monotonic() + SECONDS
    while subprocess.run(["squeue", "--noheader"], capture_output=True, check=True).stdout:
        if time.monotonic() > end:
            raise RuntimeError("jobs do not end")
        time.sleep(0.2)
    return ""


def unjudged() -> str:
    """Have NO REFERENCE, for which `trimaran` exits with 5, end nothing."""
    return 'trimaran() { command trimaran "$@" || [ $? -eq 5 ]; }'


GIVEN: dict[str, Callable[[], str]] = {
    one.__name__: one for one in (photos, run, stopped, imagenet, clone, dry, ended, unjudged)
}

if __name__ == "__main__":
    sys.stdout.write(GIVEN[sys.argv[1]]() + "\n")
