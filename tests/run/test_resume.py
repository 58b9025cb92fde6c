"""Test that a run resumes only if nothing has changed; the app is a stand-in of a few lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from samples import GOOD
from trimaran.engines import BuiltImage
from trimaran.errors import Interrupted, RunError, UsageError
from trimaran.images import definition
from trimaran.launch.specification import Node
from trimaran.recipes import library
from trimaran.report import report
from trimaran.reporting import Silent
from trimaran.run import additions, app_process, inputs, launch_spec, pipeline, run_directory
from trimaran.run import resume as resumption
from trimaran.run.record import DataRecord, ImageRecord, RunRecord
from trimaran.run.request import Request
from trimaran.site_file import Site

IMAGE = "resnet-imagenet-torch-cpu"
APP = """#!INTERPRETER
import json, sys
[out] = [word.partition("=")[2] for word in sys.argv if word.startswith("--out=")]
with open(out + "/calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
if "--resume=auto" not in sys.argv:
    sys.exit(75)
sys.path.insert(0, TESTS)
from samples import write_outcome
from pathlib import Path
write_outcome(Path(out), 0.95)
""".replace("TESTS", repr(str(Path(__file__).parents[1]))).replace("INTERPRETER", sys.executable)


class Engine:
    """An engine that runs `APP`, a stand-in for an app, on the host.

    A test may remove or change its image (`built`), or report the image as damaged (`fault`).
    """

    name = "host"
    container = False

    def __init__(self, folder: Path) -> None:
        self.built: BuiltImage | None = BuiltImage(IMAGE, "host", "/venv", None, "ab" * 32, 0)
        self.fault: str | None = None
        self.program = str(folder / "app")
        (folder / "app").write_text(APP)
        (folder / "app").chmod(0o755)

    def find(self, image: definition.Image, digest: str | None = None) -> BuiltImage | None:
        return self.built

    def damage(self, image: definition.Image, digest: str | None = None) -> str | None:
        return self.fault

    def node(self, built: BuiltImage) -> Node:
        return Node(self.program, built.reference, environment={"PATH": os.environ["PATH"]})


def data(place: Path) -> DataRecord:
    """Return the record of a data set in the folder `place`."""
    return DataRecord(name="fashion-mnist", path=str(place / "data"), sha256="cd" * 32)


@pytest.fixture
def engine(checkout: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(GOOD))
    made = Engine(own_place)
    monkeypatch.setattr(resumption, "select", lambda name: made)
    monkeypatch.setattr(definition, "load", lambda name: name)
    monkeypatch.setattr(definition, "on", lambda image, architecture: image)
    monkeypatch.setattr(definition, "entry", lambda image: None)
    monkeypatch.setattr(inputs, "prepare", lambda *_, **__: [data(own_place)])
    return made


def begin(engine: Engine, directory: Path, **more: Any) -> RunRecord:
    """Start a run in `directory`, which stops at once with a checkpoint."""
    recipe = library.load("resnet-imagenet/cpu-smoke")
    stand_in: Any = engine  # it has only what a stopped and resumed run needs
    request, built = Request(recipe, stand_in, {"epochs": 2}), engine.built
    assert built is not None
    used = ImageRecord(
        name=IMAGE, engine="host", reference="/venv", digest=None, inputs=built.inputs,
    )
    facts = data(directory.parent)
    launch = pipeline.specification(
        request, built, {facts.name: Path(facts.path)}, directory
    )
    record = run_directory.start(directory, recipe, {"epochs": 2}, used, [facts], launch, **more)
    with run_directory.alone(directory) as lock, pytest.raises(RunError) as stopped:
        app_process.perform(directory, record, launch_spec.command(launch), lock, Silent())
    assert stopped.value.code == "app-stopped"
    assert f"trimaran resume {directory}" in str(stopped.value.hint)
    return run_directory.load(directory)


def test_a_stopped_run_goes_on_with_its_own_command(engine: Engine, own_place: Path) -> None:
    out = own_place / "run"
    stopped = begin(engine, out)
    assert (stopped.status, stopped.exit_status) == ("interrupted", 75)
    resumption.resume(out, Site(), Silent())
    record, verdict = report.write(out)
    first, second = (out / "calls").read_text().splitlines()
    assert second == f"{first} --resume=auto"
    assert (record.status, record.exit_status) == ("completed", 0)
    assert record.command == stopped.command
    assert record.started == stopped.started
    assert [part.host.hostname for part in record.resumed] == [stopped.host.hostname]
    assert verdict.outcome == "NO REFERENCE"  # the epochs were changed
    assert "stopped, and resumed at 20" in (out / "report.md").read_text()
    with refused("run-completed", out):
        resumption.resume(out, Site(), Silent())


def test_what_is_no_run_is_left_as_it_is(own_place: Path) -> None:
    with refused("run-missing", own_place):
        resumption.resume(own_place, Site(), Silent())
    assert list(own_place.iterdir()) == []


def test_a_run_that_is_going_on_is_left_alone(engine: Engine, own_place: Path) -> None:
    out = own_place / "run"
    begin(engine, out)
    before = (out / "run.json").read_bytes()
    with run_directory.alone(out), pytest.raises(UsageError, match=f"{out} is running"):
        resumption.resume(out, Site(), Silent())
    assert (out / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", [".lock", "log.txt", "checkpoints", "metrics.jsonl", "run.json",
                                  "recipe.yaml"])
def test_a_link_in_a_run_is_not_followed(engine: Engine, own_place: Path, name: str) -> None:
    out, outside = own_place / "run", own_place / "outside"
    begin(engine, out)
    outside.write_text("precious")
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(outside)
    before = (out / "run.json").read_bytes()
    code = "file-not-plain" if name in (".lock", "run.json") else "path-outside"
    with refused(code, out / name):
        resumption.resume(out, Site(), Silent())
    assert outside.read_text() == "precious"
    assert (out / "run.json").read_bytes() == before


def test_an_app_that_outlives_the_tool_keeps_the_run_locked(own_place: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from trimaran import process\n"
        "from trimaran.reporting import Silent\n"
        "from trimaran.run import run_directory\n"
        "with run_directory.alone(Path('.')) as lock:\n"
        "    app = 'import time; print(1, flush=True); time.sleep(60)'\n"
        "    process.stream([sys.executable, '-c', app], None, Silent(), on_line=print,\n"
        "                   keep_open=[lock])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-uc", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as tool:
        assert tool.stdout is not None
        tool.stdout.readline()
        (app,) = Path(f"/proc/{tool.pid}/task/{tool.pid}/children").read_text().split()
        tool.kill()
        tool.wait()
        try:
            with (
                pytest.raises(UsageError, match=f"{own_place} is running"),
                run_directory.alone(own_place),
            ):
                pass
        finally:
            os.kill(int(app), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{app}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    with run_directory.alone(own_place):
        pass


def test_other_data_are_refused(
    engine: Engine, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(engine, own_place / "run")
    other = data(own_place).model_copy(update={"sha256": "ef" * 32})
    monkeypatch.setattr(inputs, "prepare", lambda *_, **__: [other])
    with refused("run-changed", other.path):
        resumption.resume(own_place / "run", Site(), Silent())


def test_another_image_is_refused(engine: Engine, own_place: Path) -> None:
    begin(engine, own_place / "run")
    assert engine.built is not None
    for built in (None, replace(engine.built, inputs="00" * 32)):
        engine.built = built
        with refused("image-missing", IMAGE):
            resumption.resume(own_place / "run", Site(), Silent())
    engine.built, engine.fault = None, "x.sif is damaged"
    with refused("image-damaged", "x.sif"):
        resumption.resume(own_place / "run", Site(), Silent())


def test_another_command_is_refused(engine: Engine, own_place: Path) -> None:
    begin(engine, own_place / "run")
    (own_place / "run").rename(own_place / "moved")
    with refused("run-changed", own_place / "moved"):
        resumption.resume(own_place / "moved", Site(), Silent())


def test_another_recipe_is_refused(engine: Engine, own_place: Path) -> None:
    begin(engine, own_place / "run")
    with (own_place / "run/recipe.yaml").open("a") as file:
        file.write("# changed\n")
    with refused("run-changed", own_place / "run/recipe.yaml"):
        resumption.resume(own_place / "run", Site(), Silent())


def test_another_first_checkpoint_or_addition_is_refused(engine: Engine, own_place: Path) -> None:
    checkpoint, packages = own_place / "step-00000001.npz", own_place / "packages"
    checkpoint.write_bytes(b"weights")
    packages.mkdir()
    added = additions.Extension(packages=packages)
    begin(engine, own_place / "run", initial=inputs.initial_record(checkpoint))
    checkpoint.write_bytes(b"others")
    with refused("run-changed", checkpoint):
        resumption.resume(own_place / "run", Site(), Silent())
    begin(engine, own_place / "other", modified=added.modifications())
    (packages / "more.py").write_text("")
    with refused("run-changed", "--venv", packages):
        resumption.resume(own_place / "other", Site(), Silent())


def test_the_time_of_all_parts_is_counted(engine: Engine, own_place: Path) -> None:
    out = own_place / "run"
    stopped = begin(engine, out)
    text = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(text | {"seconds": 5000.0}))
    resumption.resume(out, Site(), Silent())
    record = run_directory.load(out)
    assert record.seconds is not None
    assert 5000.0 <= record.seconds < 5100.0
    assert record.ended is not None
    assert (record.ended - stopped.started).total_seconds() < 100


def test_a_run_stopped_again_says_how_it_goes_on(
    engine: Engine, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = own_place / "run"
    begin(engine, out)

    def stop(*words: Any, **more: Any) -> int:
        raise Interrupted("stopped by the user: app")

    monkeypatch.setattr("trimaran.process.stream", stop)
    with pytest.raises(Interrupted) as stopped:
        resumption.resume(out, Site(), Silent())
    assert f"trimaran resume {out}" in str(stopped.value.hint)
    assert run_directory.load(out).status == "interrupted"
    assert len(run_directory.load(out).resumed) == 1
