"""Test the record of a submitted run: its `run.json` combined with the records of its jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refusals import refused
from trimaran.hostfacts import host_facts
from trimaran.run import job_chain

HOST = json.loads(host_facts().model_dump_json())


def link(directory: Path, number: int, minute: int, **end: Any) -> None:
    """Write the record of a job on two nodes that began in this minute, and its `end`, if given."""
    folder = directory / job_chain.FOLDER
    folder.mkdir(exist_ok=True)
    begun = {"number": number, "job": "7", "started": f"2026-01-01T00:{minute:02}:00Z", "step": 0,
             "hosts": [HOST, {**HOST, "hostname": "other"}]}
    (folder / f"link-{number:04}.json").write_text(json.dumps(begun))
    if end:
        (folder / f"link-{number:04}.end.json").write_text(json.dumps({
            "ended": f"2026-01-01T00:{minute + 1:02}:00Z", "step": 3, "reason": "", "files": {},
            **end,
        }))


def test_links_are_read_in_order_and_one_without_an_end_still_runs(tmp_path: Path) -> None:
    link(tmp_path, 2, 10)
    link(tmp_path, 1, 0, exit_status=75)
    first, second = job_chain.read(tmp_path)
    assert (first.number, second.number) == (1, 2)
    assert first.end is not None
    assert (first.end.step, first.end.exit_status) == (3, 75)
    assert second.end is None


def test_a_link_whose_nodes_are_still_looked_at_is_none(tmp_path: Path) -> None:
    link(tmp_path, 1, 0, exit_status=75)
    (tmp_path / "job/link-0002.json").touch()
    assert len(job_chain.read(tmp_path)) == 1


def test_a_damaged_link_is_named(tmp_path: Path) -> None:
    link(tmp_path, 1, 0, exit_status="many")
    with refused("run-damaged", tmp_path / "job/link-0001.end.json"):
        job_chain.read(tmp_path)


def test_a_run_that_was_not_submitted_has_none(tmp_path: Path) -> None:
    assert job_chain.read(tmp_path) == []
