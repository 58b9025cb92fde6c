"""Test how `Podman` handles answers of podman, which a stand-in supplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from refusals import refused
from trimaran.engines.podman import Podman
from trimaran.engines.store import Record
from trimaran.process import Result

RECORD = Record(
    name="tiny", engine="podman", reference="localhost/trimaran/tiny:1", digest="sha256:1",
    content="1", inputs="1", built="2026-01-01T00:00:00Z", base_name="debian",
    base_digest="sha256:0", size=1,
)
IN_USE = "Error: image used by 8cac2f90: image is in use by a container: consider listing"
NONE = "localhost/trimaran/tiny:2: image not known"


class Storage(Podman):
    """The engine `Podman`, created without a search for an installed podman."""

    def __init__(self) -> None:
        pass


class World:
    """A stand-in for podman: prints the given errors one after the other, and then succeeds.

    Attributes:
        reasons: errors of the next attempts to remove an image.
        silences: errors of the next attempts to inspect an image.
        waited: sum of the seconds that were waited.
        removed: names of the removed images.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.silences: list[str] = []
        self.waited = 0.0
        self.removed: list[str] = []

    def run(self, argv: Sequence[str], **_more: object) -> Result:
        """Return the result that podman would have for the command `argv`."""
        if "inspect" in argv:
            if self.silences:
                return Result(tuple(argv), 125, "", self.silences.pop(0))
            if argv[-1] != RECORD.reference:
                return Result(tuple(argv), 125, "", f"Error: inspecting object: {NONE}")
            return Result(tuple(argv), 0, RECORD.digest.removeprefix("sha256:") + "\n", "")
        if self.reasons:
            return Result(tuple(argv), 2, "", self.reasons.pop(0))
        self.removed.append(argv[-1])
        return Result(tuple(argv), 0, "", "")

    def sleep(self, seconds: float) -> None:
        """Count the seconds instead of waiting."""
        self.waited += seconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr("time.sleep", found.sleep)
    monkeypatch.setattr("trimaran.process.run", found.run)
    return found


def test_an_image_is_removed_once_podman_has_tidied_up_behind_a_run(world: World) -> None:
    world.reasons = [IN_USE, IN_USE]
    Storage().remove(RECORD)
    assert world.removed == [RECORD.reference]
    assert world.waited == 1.5


@pytest.mark.parametrize(("reasons", "seconds", "code"), [
    ([IN_USE] * 9, 7.5, "in-use"), (["the disk is broken"], 0, "program-failed"),
])
def test_what_is_not_removed_is_told(
    world: World, reasons: list[str], seconds: float, code: str
) -> None:
    world.reasons = list(reasons)
    with refused(code, RECORD.reference, reasons[0]) as caught:
        Storage().remove(RECORD)
    assert "ps --all --external" in str(caught.value.hint)
    assert world.waited == seconds
    assert world.removed == []


def test_only_what_the_storage_has_is_present(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    other = replace(RECORD, reference="localhost/trimaran/tiny:2")
    changed = replace(RECORD, digest="sha256:2")
    assert Podman.present([RECORD, other, changed]) == [RECORD]
    assert world.waited == 0.5  # `other` is inspected twice before it counts as missing


def test_a_storage_that_another_process_changes_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    world.silences = ["layer not known", NONE]
    assert Podman.present([RECORD]) == [RECORD]
    assert world.waited == 1.5
    world.silences = ["layer not known"] * 9
    with refused("program-failed", RECORD.reference) as caught:
        Podman.present([RECORD])
    assert f"rmi --force {RECORD.reference}`" in str(caught.value.hint)
