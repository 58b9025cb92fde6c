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


def current(**other: str) -> Publication | None:
    keys = {"content": "f" * 64, "release": "1", **other}
    return digests.current("tiny", "sif", "amd64", **keys)


def test_the_content_decides_and_the_version_is_second(checkout: Path) -> None:
    for new in (one(tag="a", content="1" * 64, release="1"), one(tag="b", content="2" * 64),
                one(tag="c", content="3" * 64, architecture="arm64", release="1")):
        digests.record(new, digests.own_path())
    assert current(content="2" * 64) == one(tag="b", content="2" * 64)
    assert current() == one(tag="a", content="1" * 64, release="1")
    assert current(content="3" * 64) == current(), "the image for arm64 is not for amd64"
    assert current(release="2") is None
    assert current(release="b") == one(tag="b", content="2" * 64), "as older versions recorded it"


def test_a_digest_is_that_of_the_image_or_of_its_manifest(checkout: Path) -> None:
    digests.record(one(), digests.own_path())
    assert digests.with_digest("tiny", "sif", "sha256:" + "a" * 64) == one()
    assert digests.with_digest("tiny", "sif", "sha256:" + "b" * 64) == one()
    assert digests.with_digest("tiny", "oci", "sha256:" + "a" * 64) is None
    assert digests.with_digest("other", "sif", "sha256:" + "a" * 64) is None


def test_files_of_older_versions_list_images_for_amd64(checkout: Path) -> None:
    digests.record(one(), digests.own_path())
    text = digests.own_path().read_text().replace("  architecture: amd64\n", "")
    assert "architecture" not in text
    digests.own_path().write_text(text)
    assert digests.known() == (one(),)
    assert one().architecture == "amd64"


def test_a_version_that_was_moved_no_longer_names_the_older_image(checkout: Path) -> None:
    for new in (one(tag="a", release="1"), one(tag="b", release="1"),
                one(tag="c", release="1", architecture="arm64"), one(tag="d")):
        digests.record(new, digests.own_path())
    assert [(known.tag, known.release) for known in digests.known()] == [
        ("a", None), ("b", "1"), ("c", "1"), ("d", None)]


def test_a_repeated_push_keeps_the_version_of_the_same_image(checkout: Path) -> None:
    digests.record(one(tag="a", release="1"), digests.own_path())
    digests.record(one(tag="a"), digests.own_path())
    assert [known.release for known in digests.known()] == ["1"]
    digests.record(one(tag="a", manifest="sha256:" + "c" * 64), digests.own_path())
    assert [known.release for known in digests.known()] == [None]


def test_the_counterpart_is_in_the_same_registry(checkout: Path) -> None:
    sif = "sha256:" + "1" * 64
    digests.record(one(tag="a-sif", digest=sif), digests.own_path())
    digests.record(one(reference="localhost:5000/me/tiny:c", form="oci",
                       digest="sha256:" + "3" * 64), digests.own_path())
    assert digests.counterpart("tiny", sif, "oci") == sif


def test_the_counterpart_is_the_other_format_of_the_same_image(checkout: Path) -> None:
    sif, oci = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    digests.record(one(tag="a-sif", digest=sif), digests.own_path())
    assert digests.counterpart("tiny", sif, "oci") == sif, "no counterpart is recorded"
    digests.record(one(tag="b", form="oci", digest="sha256:" + "3" * 64, architecture="arm64"),
                   digests.own_path())
    assert digests.counterpart("tiny", sif, "oci") == sif, "it is for another architecture"
    digests.record(one(tag="c", form="oci", digest=oci), digests.own_path())
    assert digests.counterpart("tiny", sif, "oci") == oci
    assert digests.counterpart("tiny", oci, "sif") == sif
    assert digests.counterpart("tiny", sif, "sif") == sif
    assert digests.counterpart("other", sif, "oci") == sif


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
    assert current() == released
    digests.record(one(), digests.own_path())
    assert current() == one()
    assert digests.with_digest("tiny", "sif", released.digest) == released
    assert digests.project_path().read_bytes() == before
    assert not digests.own_path().is_relative_to(checkout)


def test_what_is_in_both_is_known_once(checkout: Path) -> None:
    digests.record(one(digest="sha256:" + "1" * 64), digests.project_path())
    digests.record(one(), digests.own_path())
    assert digests.known() == (one(),)
