"""Settings of the site file reach the ranks and `run.json`; the user's environment does not."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobplaces import make, write_program
from trimaran.cluster import script, submission
from trimaran.engines.apptainer import Apptainer
from trimaran.reporting import Silent
from trimaran.run import pipeline, run_directory
from trimaran.run.record import ImageRecord
from trimaran.site_file import Cluster, Site

FABRICS = re.compile(r"(?m)^fabrics='[^']*'$")
"""Matches the table of network cards and their devices in `functions.sh`."""

CLUSTER = Cluster(
    mpi="pmi2", flags=("--no-mount=bind-paths", "--bind=/w:/usr/lib"),
    env={"NCCL_SOCKET_IFNAME": "ib 0", "SEED": "3", "OMP_NUM_THREADS": "9"},
)


def test_the_command_in_the_record_is_that_of_the_ranks(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=CLUSTER)
    code, said = place.run()
    assert code == 0, said
    record = run_directory.load(place.out)
    line = record.command.argv
    assert place.recorded("argv") == line[line.index(str(place.root / "bin/apptainer")) + 1 :]
    assert "--bind=/w:/usr/lib" in line
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    for name, value in record.command.env.items():
        if name.startswith("APPTAINERENV_"):
            assert passed[name] == value
    assert record.command.env["APPTAINERENV_OMP_NUM_THREADS"] == "1", "the recipe's wins"
    assert record.site is not None
    assert record.site.env == {"NCCL_SOCKET_IFNAME": "ib 0", "SEED": "3"}
    assert record.site_changes == ["the flag --bind to /usr/lib", "the variable SEED"]


def test_what_the_users_environment_says_to_apptainer_reaches_no_rank(tmp_path: Path) -> None:
    """Variables such as APPTAINER_BIND in the user's environment do not affect the ranks.

    In the tests, `Place.start` starts each job with such variables in its environment.
    """
    place = make(tmp_path / "p")
    code, said = place.run()
    assert code == 0, said
    names = {entry.partition("=")[0] for entry in place.recorded("env")}
    assert not [name for name in names if "LEAK" in name or name.startswith("SINGULARITY")]
    assert not {"APPTAINER_BIND", "APPTAINER_OVERLAY_IMAGE"} & names


def test_devices_of_the_network_are_shown_and_none_is_missed_in_silence(
    tmp_path: Path,
) -> None:
    cards = {name: tmp_path / f"sys-{name}" for name in ("shown", "lost", "none")}
    for name in ("shown", "lost"):
        (cards[name] / "card0").mkdir(parents=True)
    cluster = Cluster(mpi="pmi2", devices=("/dev/zer*", "/dev/null", "/dev/missing*"))
    place = make(tmp_path / "p", cluster=cluster)
    table = "\n".join((f"{cards['shown']} /dev/nul*", f"{cards['lost']} /dev/absent* /dev/gone",
                       f"{cards['none']} /dev/never*"))
    place.install((place.out / script.SCRIPT).read_text(), FABRICS.sub(
        f"fabrics='{table}'", script.functions()))
    code, said = place.run()
    assert code == 0, said
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    shown = passed["APPTAINER_MOUNT"].splitlines()
    for device in ("/dev/zero", "/dev/null"):
        assert shown.count(f'type=bind,"source={device}","destination={device}"') == 1
    assert not [line for line in shown if "*" in line]
    log = (place.out / "log.txt").read_text()
    assert f"{cards['lost']} lists a network card, but there is no /dev/absent* /dev/gone" in log
    assert " /dev/missing*, " in log
    assert str(cards["shown"]) not in log
    assert "/dev/never" not in log
    assert "no /dev/zer" not in log
    record = run_directory.load(place.out)
    assert record.site is not None
    assert record.site.devices == list(cluster.devices)
    assert record.site_changes == []


@pytest.mark.parametrize("device", ["/dev/infiniband", "/dev/hfi1*", "/dev/cxi*"])
def test_known_fabrics_are_shown_without_a_word_in_the_site_file(device: str) -> None:
    [table] = FABRICS.findall(script.functions())
    assert device in table.rstrip("'").split()


@pytest.mark.parametrize("device", [
    "/dev", "/dev/", "/etc/passwd", "dev/x", "/dev/../etc", "/dev/x/../../etc", "/dev/$(id)",
    "/dev/a b", "/dev/a;b", "/dev/[ab]", "/dev/?", "/dev/.x", "/dev//x", "/dev/x\n", "",
])
def test_what_is_no_device_is_refused(device: str) -> None:
    with pytest.raises(ValidationError, match="devices"):
        Cluster(devices=(device,))


def test_submit_writes_it_down(
    tmp_path: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(tmp_path / "p", cluster=CLUSTER)
    write_program(place.root / "bin/sbatch", '#!/bin/sh\ncp job/functions.sh "$0.saw"; echo 12\n')
    monkeypatch.setenv("PATH", str(place.root / "bin"), prepend=os.pathsep)
    (tmp_path / "licences").mkdir()
    site = Site(binds={tmp_path / "licences": "/mnt/licences"})
    request = replace(place.job.request, site=site, out=own_place / "run",
                      engine=Apptainer(str(place.root / "bin/apptainer")))
    image = ImageRecord(**vars(place.job.built))
    monkeypatch.setattr(
        pipeline, "prepare", lambda *_: (request, place.job.data, place.job.built, image)
    )
    submission.submit(request, "here", CLUSTER, Silent())
    assert (place.root / "bin/sbatch.saw").read_text() == script.functions()
    record = run_directory.load(own_place / "run")
    assert record.site is not None
    assert record.site.flags == list(CLUSTER.flags)
    assert record.site.binds == {"/mnt/licences": str(tmp_path / "licences")}
    assert record.job is not None
