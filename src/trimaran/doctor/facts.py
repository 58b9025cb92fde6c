"""The facts of a node, collected by a shell script that needs no Python on the node.

The script consists of the files in `probes/`. It runs on the login node and, through the batch
system, on each compute node. Its output has one section for each fact:

    ## KEY STATUS
     first line of the output of a command or of a file
     second line

Each line of a fact begins with a blank, so that no content can look like the header of a section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimaran import process
from trimaran.errors import RunError

_HEADER = re.compile(r"## ([a-z][a-z0-9-]*(?:\.[^\s]+)?) (\d{1,3})")

PROBES = Path(__file__).with_name("probes")
"""Folder of the shell source files of the probe, which collects the facts of a node.

It contains `functions.sh`, and one file for each group of facts.
"""

SECONDS = 20
"""Maximum time in seconds for collecting the facts of one node."""


@dataclass(frozen=True)
class Fact:
    """The output of one command of the probe, or the content of a file that the probe read.

    Attributes:
        status: exit status of the command; 127: the program is missing, 124: it took too long.
        text: standard output, without the final line break.
    """

    status: int
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines of `text`."""
        return self.text.splitlines()


@dataclass(frozen=True)
class NodeFacts:
    """The facts that were collected on one node; `facts` maps a key to a fact."""

    node: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def text(self, key: str) -> str | None:
        """Return the text of the fact `key`; None if the fact is missing or its command failed."""
        fact = self.facts.get(key)
        return fact.text if fact is not None and fact.status == 0 else None

    def number(self, key: str) -> int | None:
        """Return the fact `key` as an integer; None if it is missing or not an integer."""
        text = self.text(key)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None

    def has_capability(self, number: int) -> bool:
        """Return whether the process of the probe had a Linux capability (capabilities(7)).

        `number` is the number of the capability.
        """
        known = re.fullmatch(r"[0-9a-f]{1,16}", self.text("capabilities") or "")
        return known is not None and bool(int(known[0], 16) >> number & 1)

    def under(self, prefix: str) -> dict[str, str]:
        """Return the facts with a key `PREFIX.NAME`: a dictionary that maps NAME to the text.

        Facts whose command failed are left out.
        """
        return {
            key.partition(".")[2]: fact.text for key, fact in self.facts.items()
            if key.partition(".")[0] == prefix and fact.status == 0
        }


def parse(text: str) -> NodeFacts:
    """Parse the output of the probe, and return the facts; other lines are ignored."""
    facts: dict[str, Fact] = {}
    key, status, lines = "", 0, list[str]()
    # str.splitlines would also split at other characters, such as U+2028.
    for line in [*text.split("\n"), "## end 0"]:
        if header := _HEADER.fullmatch(line):
            if key:
                facts[key] = Fact(status, "\n".join(lines))
            key, status, lines = header[1], int(header[2]), []
        elif line.startswith(" "):
            lines.append(line[1:])
    node = facts.get("node", Fact(0, "")).text
    return NodeFacts(node or "unknown", facts)


def probe_source(
    parameters: Mapping[str, str] | None = None, groups: Sequence[str] | None = None
) -> str:
    """Return the shell source of the probe.

    Args:
        parameters: shell variables that the groups of facts read (see `functions.sh`), by name.
        groups: names of the files in `PROBES`, without `.sh`; None: all.
    """
    first = PROBES / "functions.sh"
    files = sorted(path for path in PROBES.glob("*.sh") if path != first
                   and (groups is None or path.stem in groups))
    shebang, _, functions = first.read_text(encoding="utf-8").partition("\n")
    assigned = [f"{name}={process.quoted(value)}" for name, value in (parameters or {}).items()]
    # Remove carriage returns from the output, because Python reads them as ends of lines.
    return "\n".join([
        shebang, *assigned, functions, "{",
        *(path.read_text(encoding="utf-8") for path in files), "} | tr -d '\\r'", "",
    ])


def of_this_host(
    parameters: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None,
    groups: Sequence[str] | None = None,
) -> NodeFacts:
    """Return the facts of this machine.

    Args:
        parameters: shell variables of the probe; `root` is the folder of another machine's recorded
            files, for tests: the probe reads `ROOT/proc`, `ROOT/sys`, `ROOT/dev` and `ROOT/etc`.
        env: the complete environment of the probe; None: the environment of this process.
        groups: as in `probe_source`.

    Raises:
        RunError: the probe does not end within `SECONDS`.
    """
    try:
        done = process.ask(["/bin/sh", "-s"], SECONDS, env=env,
                           stdin=probe_source(parameters, groups))
    except RunError as error:
        raise RunError(
            f"the facts of this machine were not collected: {error.message}", code=error.code,
            hint="a file system or a program may hang: try `df` and `srun --mpi=list`",
        ) from error
    return parse(done.stdout)
