"""Real bundles: a training and its verdict from one file, without a network.

`unshare --net` creates a network namespace whose only interface, the loopback, is down.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran import paths
from trimaran.engines.apptainer import Apptainer

pytestmark = [
    pytest.mark.trains,
    pytest.mark.alone,
    pytest.mark.engine("apptainer"),
    pytest.mark.usefixtures("user_cache"),
    pytest.mark.timeout(1500),  # the image may have to be built
]

RECIPE = "resnet-imagenet/cpu-quickstart"
SHORT = ["--set", "max-steps=12", "--set", "log-every=4", "--set", "eval-every=1"]
OFFLINE = ["unshare", "--user", "--map-current-user", "--net"]


def call(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, check=False, timeout=1400,
        env={**os.environ, "COLUMNS": "200", **env},
    )


def trimaran(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    code = "from trimaran.cli import main; main()"
    return call(sys.executable, "-c", code, *words, **env)


def node(folder: Path) -> dict[str, str]:
    """Return the environment of a node that has Apptainer and coreutils, and no Trimaran."""
    (folder / "home").mkdir(exist_ok=True)
    engine = Path(Apptainer().executable).parent
    return {"PATH": f"{engine}:/usr/bin:/bin", "HOME": str(folder / "home")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the bundle `b.tar`, unpacked into the subfolder `node, one`.

    The comma and the space in this name test that the scripts of the bundle accept such paths.
    """
    place = tmp_path_factory.mktemp("bundle")
    cache = os.environ.get("TRIMARAN_CACHE", str(paths.cache()))
    made = trimaran("bundle", RECIPE, "--with-data", "-o", str(place / "b.tar"), *SHORT,
                    TRIMARAN_CACHE=cache)
    assert made.returncode == 0, made.stderr
    got = trimaran("unbundle", str(place / "b.tar"), "--to", str(place / "node, one"))
    assert got.returncode == 0, got.stderr
    assert got.stdout.strip() == str(place / "node, one")
    yield place
    shutil.rmtree(place)  # gigabytes, which pytest would keep


def test_the_network_is_really_cut_off() -> None:
    connect = (
        "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).close()"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = [sys.executable, "-c", connect, str(server.getsockname()[1])]
        assert call(*words).returncode == 0
        inside = call(*OFFLINE, *words)
    assert inside.returncode != 0
    assert "unreachable" in inside.stderr
    interfaces = call(*OFFLINE, "cat", "/proc/net/dev").stdout.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]


def test_a_bundle_trains_without_a_network_and_is_judged_later(
    place: Path, tmp_path: Path
) -> None:
    folder, out = place / "node, one", tmp_path / "run, 'one'"
    done = call(
        "env", "-i", *(f"{key}={value}" for key, value in node(tmp_path).items()),
        *OFFLINE, "sh", str(folder / "run.sh"), "--out", str(out), cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 12/12" in done.stdout
    record = json.loads((out / "run.json").read_text())
    assert record["status"] == "completed"
    assert record["image"]["engine"] == "apptainer"
    assert record["recipe"]["changed"]["max-steps"] == 12
    judged = trimaran("report", str(out))
    assert judged.returncode == 5, judged.stderr
    assert "the recipe's arguments were changed" in judged.stdout
    assert "VERDICT NO REFERENCE" in judged.stdout
    evidence = json.loads((out / "verdict.json").read_text())
    assert evidence["run"]["environment"]["packages"]["torch"].startswith("2.13.0")
    planned = trimaran("run", RECIPE, "--engine", "apptainer", "--data", str(folder / "data"),
                       "--out", str(tmp_path / "run, 'two'"), "--dry-run", *SHORT)
    words = shlex.split(planned.stdout.splitlines()[-1])
    words = words[words.index(Apptainer().executable) :]
    image = next(word for word in words if word.endswith(".sif"))
    ran = [word.replace("'one'", "'two'") for word in record["command"]["argv"]]
    assert ran == [str(folder / "image.sif") if word == image else word for word in words]


def test_a_changed_byte_of_the_image_is_found_before_anything_runs(
    place: Path, tmp_path: Path
) -> None:
    sif = place / "node, one/image.sif"
    with sif.open("r+b") as file:
        file.seek(1 << 20)
        byte = file.read(1)
        file.seek(1 << 20)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        done = call("sh", str(place / "node, one/run.sh"), "--out", str(tmp_path / "run"))
        file.seek(1 << 20)
        file.write(byte)
    assert done.returncode == 65
    assert "image.sif: FAILED" in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_imported_bundle_serves_run_on_a_machine_without_network(
    place: Path, tmp_path: Path
) -> None:
    cache = {"TRIMARAN_CACHE": str(tmp_path / "cache")}
    got = trimaran("unbundle", str(place / "b.tar"), "--to", str(tmp_path / "b"), "--import",
                   **cache)
    assert got.returncode == 0, got.stderr
    code = "from trimaran.cli import main; main()"
    done = call(*OFFLINE, sys.executable, "-c", code, "run", RECIPE, "--engine", "apptainer",
                "--offline", "--out", str(tmp_path / "run"), *SHORT, **cache)
    assert done.returncode == 5, done.stderr
    assert f"{tmp_path / 'cache'}" in done.stderr
    shutil.rmtree(tmp_path / "b")
    shutil.rmtree(tmp_path / "cache")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_without_user_namespaces_it_says_why(place: Path, tmp_path: Path) -> None:
    forbid = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    drop = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
    done = call(
        "unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", forbid, "sh", *drop,
        "sh", str(place / "node, one/run.sh"), "--out", str(tmp_path / "run"), **node(tmp_path),
    )
    assert done.returncode == 69, done.stderr
    assert "/proc/sys/user/max_user_namespaces is 0" in done.stderr
    assert not (tmp_path / "run").exists()
