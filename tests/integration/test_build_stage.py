"""Test build stages that are stopped, that refuse their base image, and that fail for Horovod.

The tests build a small image whose build stage is a stand-in for the stage of an AMD image.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from refusals import refused
from trimaran import paths
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.build_steps import Container
from trimaran.engines.podman import Podman
from trimaran.errors import BuildError
from trimaran.images import definition, render
from trimaran.reporting import Silent

ENGINES = [
    pytest.param(Apptainer, marks=pytest.mark.engine("apptainer"), id="apptainer"),
    pytest.param(Podman, marks=pytest.mark.engine("podman"), id="podman"),
]
pytestmark = pytest.mark.timeout(560)  # up to three builds

STAGE = r"""#!/bin/sh
# A stand-in for a build stage: three objects, made by a stand-in for a compiler.
set -eu
mkdir -p /opt/stage/bin /opt/stage/lib
refuse() {
    echo '{"stage": "'"$1"'", "faults": ["hipcc: the stand-in has none"]}' \
        > /mnt/compiled/report.json
    exit "$2"
}
[ ! -e /mnt/compiled/wrong-base ] || refuse base 78
[ "$HOROVOD" = yes ] || exit 0
[ ! -e /mnt/compiled/no-horovod ] || refuse horovod 79
cat > /opt/cc <<'END'
#!/bin/sh
echo "$2" >> /mnt/compiled/calls
[ "$2" != b ] || [ ! -e /mnt/compiled/hangs ] || { touch /mnt/compiled/waits; sleep 120; }
echo "object of $2" > "$4"
END
chmod +x /opt/cc
cd /opt
for source in a b c; do sh /mnt/build/kept.sh /opt/cc -c "$source" -o "$source.o"; done
cat a.o b.o c.o > /opt/stage/lib/product
"""

DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from integration import test_build_stage as stage
stage.patched(Path({folder!r}))
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.podman import Podman
from trimaran.reporting import Silent
image = stage.definition.read(Path({folder!r}) / "image.yaml")
{engine}().build(image, base=None, offline=False, reporter=Silent())
"""


def patched(folder: Path) -> None:
    """Take the files of build stages from `folder`, not from the checkout."""
    vars(definition)["build_files"] = lambda image: [
        folder / name for name in (image.build.files if image.build else ())
    ]


@pytest.fixture
def image(
    tiny: definition.Image, own_place: Path, tmp_path: Path, engine_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> definition.Image:
    """Return the definition of a stand-in for an image of AMD, on Debian."""
    monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1577836800")
    folder = tmp_path / f"amd-stand-in-{time.time_ns()}"
    shutil.copytree(tiny.folder, folder)
    text = (folder / "image.yaml").read_text()
    text += "gpu: amd\nbuild: {files: [kept.sh, stage.sh], script: stage.sh, optional: true}\n"
    (folder / "image.yaml").write_text(text)
    (folder / "stage.sh").write_text(STAGE)
    shutil.copy(paths.repository() / "containers/build/kept.sh", folder)
    monkeypatch.setattr(definition, "build_files", definition.build_files)
    patched(folder)
    found = definition.read(folder / "image.yaml")
    render.write(found)
    return found


def objects(engine: type[Container], image: definition.Image) -> Path:
    """Create the folder for the compiled objects of a build of the image, and return it."""
    place = engine()._job(image, None, None, False, Silent()).compiled
    assert place is not None
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.mark.parametrize("engine", ENGINES)
def test_a_build_that_was_killed_goes_on(
    engine: type[Container], image: definition.Image
) -> None:
    kept = objects(engine, image)
    (kept / "hangs").touch()
    driver = DRIVER.format(tests=str(Path(__file__).parents[1]), folder=str(image.folder),
                           engine=engine.__name__)
    with subprocess.Popen([sys.executable, "-c", driver], start_new_session=True) as child:
        while not (kept / "waits").exists():
            assert child.poll() is None, "the build has ended"
            time.sleep(0.1)
        tree = psutil.Process(child.pid)
        for one in (*tree.children(recursive=True), tree):
            one.kill()
    assert (kept / "calls").read_text() == "a\nb\n"
    (kept / "hangs").unlink()
    built = engine().build(image, base=None, offline=True, reporter=Silent())
    assert (kept / "calls").read_text() == "a\nb\nb\nc\n"
    product = engine().inside(built, ["-c", "print(open('/opt/trimaran/lib/product').read())"])
    assert product.split("\n")[:3] == ["object of a", "object of b", "object of c"]
    assert engine().described(built).labels[definition.HOROVOD_LABEL] == "yes"
    with engine().again(image, base=None, reporter=Silent()) as second:
        assert second.digest == built.digest
    assert (kept / "calls").read_text() == "a\nb\nb\nc\n"  # the second build used its own folder


@pytest.mark.parametrize("engine", ENGINES)
def test_the_image_is_built_without_horovod(
    engine: type[Container], image: definition.Image
) -> None:
    (objects(engine, image) / "no-horovod").touch()
    built = engine().build(image, base=None, offline=True, reporter=Silent())
    assert engine().described(built).labels[definition.HOROVOD_LABEL] == "no"
    assert engine().inside(
        built, ["-c", "import os; print(os.environ['TRIMARAN_HOROVOD'])"]
    ) == "no\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_base_image_that_is_unsupported_has_its_own_code(
    engine: type[Container], image: definition.Image
) -> None:
    (objects(engine, image) / "wrong-base").touch()
    with refused("base-unsupported", "hipcc", kind=BuildError):
        engine().build(image, base=None, offline=True, reporter=Silent())
    assert engine().find(image) is None
