"""Store the results of qualifications, which measure nodes, and read the newest result.

The results are stored in the cache. A result expires, because maintenance changes nodes, and
components fail. The validity of seven days is a choice of this project: a campaign of trainings
takes about this time, and the usual interval between two maintenances of a cluster is longer.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from trimaran import paths, strict
from trimaran.doctor import findings, qualification
from trimaran.doctor.findings import Finding, Level, worst
from trimaran.doctor.measuring import Measured
from trimaran.doctor.qualification import Qualification
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.run import run_directory

VALID = timedelta(days=7)
FOLDER = "qualifications"
HERE = "this-machine"
"""Name of the folder for measurements of the machine on which the command runs.

A measurement of the nodes of a cluster has another folder.
"""


class Evidence(strict.Model):
    """The result of a qualification, which measures the speed of nodes or of this machine.

    Attributes:
        cluster: name of the cluster in the site file; None: the machine on which the command ran.
        recipe: name of the recipe that will run on the nodes.
        date: time of the measurement.
        valid_until: time at which the result expires.
        image: name of the image.
        image_digest: digest of the image; None: the app ran on the host without a container.
        directory: the run directory of the measurement.
        measured: the measured values; None: the measurement did not end.
        findings: the findings of each node.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    cluster: str | None
    recipe: str
    date: AwareDatetime
    valid_until: AwareDatetime
    image: str
    image_digest: str | None
    directory: str
    measured: Qualification | None
    findings: dict[str, list[Finding]]

    @property
    def level(self) -> Level:
        """The most severe level of all findings."""
        return worst(one for own in self.findings.values() for one in own)


def write(done: Measured, cluster: str | None, recipe: str, now: datetime | None = None) -> Path:
    """Write the evidence of a measurement to the cache, and return its path."""
    record = run_directory.load(done.directory)
    date = now or datetime.now(timezone.utc)
    evidence = Evidence(
        cluster=cluster, recipe=recipe, date=date, valid_until=date + VALID,
        image=record.image.name, image_digest=record.image.digest, directory=str(done.directory),
        measured=done.qualification, findings=done.findings,
    )
    path = _folder(cluster) / f"{date:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, evidence.model_dump_json(by_alias=True, indent=2) + "\n")
    return path


def newest(cluster: str | None) -> tuple[Path, Evidence] | None:
    """Return the newest readable evidence of a cluster with its path; None if there is none.

    If `cluster` is None, the evidence is about the machine on which the command runs.
    """
    if not paths.has_cache():
        return None
    for path in sorted(_folder(cluster).glob("*.json"), reverse=True):
        with suppress(UsageError):  # of another version, or damaged
            return path, strict.load_json(Evidence, path)
    return None


def _folder(cluster: str | None) -> Path:
    return paths.cache(FOLDER, HERE if cluster is None else f"cluster-{cluster}")


def age(cluster: str | None, now: datetime | None = None) -> list[Finding]:
    """Return a list with one finding: age and result of a cluster's newest examination.

    The list is empty if the cluster was never examined.
    """
    known = newest(cluster)
    if known is None:
        return []
    path, evidence = known
    now = now or datetime.now(timezone.utc)
    days = (now - evidence.date).total_seconds() / 86400
    bad = [node for node, own in evidence.findings.items() if worst(own) != "ok"]
    named = f"; out of line: {', '.join(sorted(bad))}" if bad else ""
    valid = now <= evidence.valid_until
    level: Level = "ok" if valid and not bad else "warn"
    word = "valid" if valid else "expired"
    return [findings.found(
        qualification.FINDINGS, "qualification-expired", level,
        f"{len(evidence.findings)} nodes were measured {days:.0f} days ago ({word}:"
        f" {evidence.valid_until:%Y-%m-%d}){named}; {path}",
    )]
