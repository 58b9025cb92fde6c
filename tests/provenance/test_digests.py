"""Tests of the record of published images: strict parsing, order, and missing files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.errors import UsageError
from trimaran.provenance import digests
from trimaran.provenance.digests import Digests, Publication


def one(
    image: str = "tiny", tag: str = "1", form: digests.Form = "sif", **other: str
) -> Publication:
    fields = {
        "reference": f"host.example:5000/team/{image}:{tag}", "digest": "sha256:" + "a" * 64,
        "manifest": "sha256:" + "b" * 64, "content": "c" * 64, **other,
    }
    return Publication(image=image, form=form, size=1, **fields)  # type: ignore[arg-type]


def test_the_committed_file_is_as_it_would_be_written() -> None:
    assert digests.project_path().read_text() == digests.dump(digests.load(digests.project_path()))


def test_a_checkout_without_the_file_has_published_nothing(checkout: Path) -> None:
    assert digests.load(digests.project_path()) == Digests()
    assert digests.known() == ()


def test_records_are_sorted_and_one_reference_is_there_once(checkout: Path) -> None:
    for new in (one("zebra"), one("tiny", "2"), one("tiny", "1", digest="sha256:" + "0" * 64),
                one("tiny", "1")):
        digests.record(new, digests.own_path())
    assert digests.known() == (one("tiny", "1"), one("tiny", "2"), one("zebra"))
    assert digests.own_path().read_text().startswith("# What was pushed")


def test_the_digest_decides_where_it_is_given_and_the_tag_elsewhere(checkout: Path) -> None:
    digests.record(one(tag="1"), digests.own_path())
    digests.record(one(tag="2", digest="sha256:" + "d" * 64), digests.own_path())
    assert digests.find("tiny", "sif", tag="1") == one(tag="1")
    assert digests.find("tiny", "sif", tag="1", digest="sha256:" + "d" * 64) != one(tag="1")
    assert digests.find("tiny", "sif", digest="sha256:" + "b" * 64) == one(tag="1")  # manifest
    assert digests.find("tiny", "sif", tag="1", digest="sha256:" + "e" * 64) is None
    assert digests.find("tiny", "oci", tag="1") is None
    assert digests.find("other", "sif", tag="1") is None


def test_a_publication_knows_its_place_and_tag() -> None:
    assert one(tag="0.1.0-torch2.13-cpu").tag == "0.1.0-torch2.13-cpu"
    assert one().place == "host.example:5000/team"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("digest: sha256:short", "digest"),
        ("reference: https://host.example/team/tiny:1", "reference"),
        ("reference: host.example/team/tiny", "reference"),
        ("form: docker", "form"),
        ("extra: 1", "extra"),
    ],
)
def test_faults_are_named_with_their_line(checkout: Path, line: str, fault: str) -> None:
    digests.record(one(), digests.own_path())
    key = line.partition(":")[0]
    lines = digests.own_path().read_text().splitlines()
    kept = [old for old in lines if not old.strip(" -").startswith(f"{key}:")]
    digests.own_path().write_text("\n".join([*kept, f"  {line}", ""]))
    with pytest.raises(UsageError, match=rf"digests.yaml:\d+: .*{fault}"):
        digests.known()


def test_a_users_own_push_comes_first_and_leaves_the_checkout_alone(checkout: Path) -> None:
    released = one(digest="sha256:" + "1" * 64, reference="ghcr.example/project/tiny:1")
    digests.record(released, digests.project_path())
    before = digests.project_path().read_bytes()
    assert digests.find("tiny", "sif", tag="1") == released
    digests.record(one(), digests.own_path())
    assert digests.find("tiny", "sif", tag="1") == one()
    assert digests.find("tiny", "sif", digest=released.digest) == released
    assert digests.project_path().read_bytes() == before
    assert not digests.own_path().is_relative_to(checkout)


def test_what_is_in_both_is_known_once(checkout: Path) -> None:
    digests.record(one(digest="sha256:" + "1" * 64), digests.project_path())
    digests.record(one(), digests.own_path())
    assert digests.known() == (one(),)
