"""Create the files that the commands on a page of the site require, in the working directory.

    python -m given NAME    # print a line for the shell, such as the variables that a page assumes

Each function imports what it needs, because some modules read definitions that are missing in a
small checkout.
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
    """Create `photos`: images in one folder per split and class."""
    from photos import folder

    folder(Path("photos"))
    return ""


def texts() -> str:
    """Create `texts`: documents as files, and as lines of JSON."""
    from writtentexts import folder

    folder(Path("texts"))
    return ""


def run() -> str:
    """Create a completed run of the quickstart; `$RUN` is its directory."""
    import finished
    from trimaran.recipes import library

    directory = Path("runs", QUICKSTART, "1").absolute()
    finished.finish(directory, library.load(QUICKSTART), image=finished.SIF)
    return f"RUN={shlex.quote(str(directory))}"


def handin() -> str:
    """Create a completed run of the quickstart, and a checkout without evidence."""
    root = _checkout("checkout-evidence")
    (root / "site").unlink()
    (root / "site").mkdir()
    return f"{run()}\nexport TRIMARAN_ROOT={shlex.quote(str(root))}"


def stopped() -> str:
    """Create a run of the quickstart stopped by Ctrl-C; `$RUN` is its directory."""
    directory = Path("runs", QUICKSTART, "1").absolute()
    words = ["run", QUICKSTART, "--engine", "apptainer", "--out", str(directory)]
    with subprocess.Popen([*TRIMARAN, *words], stdout=sys.stderr) as child:
        end = time.monotonic() + SECONDS
        while "mounted" not in _text(directory / "log.txt"):  # until the small app has started
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the run has not come to its app")
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
    return f"RUN={shlex.quote(str(directory))}"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def imagenet() -> str:
    """Create tiny ImageNet files in `official`, and a copy of the repository for them.

    The data contract in the copy states the hashes of these files.
    """
    import yaml

    from photos import TRUTH, official_tars
    from trimaran.files import md5

    root = _checkout("checkout")
    official = official_tars(Path("official"), root)
    file = root / "recipes/data/imagenet-2012.yaml"
    contract = yaml.safe_load(file.read_text())
    contract["files"] = {path.name: {"md5": md5(path)} for path in official.iterdir()}
    contract["splits"] = {"train": {"samples": 9}, "val": {"samples": len(TRUTH)}}
    file.write_text(yaml.safe_dump(contract))
    return f"export TRIMARAN_ROOT={shlex.quote(str(root))}"


def cifar() -> str:
    """Create a tiny CIFAR-10 archive in `copy`, and a checkout whose contract has its hashes."""
    import cifars
    import datasets

    root = _checkout("checkout-cifar")
    contract = cifars.document(Path("copy").absolute()) | {"name": "cifar-10"}
    datasets.write(root / "recipes/data/cifar-10.yaml", contract)
    return f"export TRIMARAN_ROOT={shlex.quote(str(root))}"


def _checkout(name: str) -> Path:
    """Create a checkout of links to the repository's files; only `recipes` is a copy."""
    source, root = paths.repository(), Path(name).absolute()
    root.mkdir()
    for path in source.iterdir():
        if path.name != "recipes":
            (root / path.name).symlink_to(path)
    shutil.copytree(source / "recipes", root / "recipes")
    return root


def clone() -> str:
    """Create the link `trimaran` to the repository, and a fake pipx that runs `pip --dry-run`."""
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
    """Make `make` print its commands without executing them."""
    return "export MAKEFLAGS=n"


def ended() -> str:
    """Wait until no job is queued or running."""
    end = time.monotonic() + SECONDS
    while subprocess.run(["squeue", "--noheader"], capture_output=True, check=True).stdout:
        if time.monotonic() > end:
            raise RuntimeError("jobs do not end")
        time.sleep(0.2)
    return ""


def unjudged() -> str:
    """Accept exit code 5 of `trimaran` (NO REFERENCE) as success."""
    return 'trimaran() { command trimaran "$@" || [ $? -eq 5 ]; }'


GIVEN: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (photos, texts, run, handin, stopped, imagenet, cifar, clone, dry, ended, unjudged)
}

if __name__ == "__main__":
    sys.stdout.write(GIVEN[sys.argv[1]]() + "\n")
