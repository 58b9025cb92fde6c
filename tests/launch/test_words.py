"""Words of commands with shell variables: a shell expands them, and `plain` refuses them."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refusals import refused
from trimaran.errors import UsageError
from trimaran.launch.apptainer import mount_options
from trimaran.launch.specification import (
    IfSet,
    Joined,
    Mount,
    ShellJson,
    Text,
    Variable,
    join,
    json_source,
    plain,
    shell_source,
)
from trimaran.run.node_scripts import functions

VALUE = "a b'\"$(touch owned)`;*\\"
PRINTABLE = st.text(
    st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\x7f"),
    max_size=20,
)


def words(source: str, before: str = "", **variables: str) -> list[str]:
    """Return the words to which a shell expands `source`, after the lines `before`."""
    script = f'{before}\nprintf "%s\\0" {source}'
    done = subprocess.run(["sh", "-c", script], env={"LC_ALL": "C.UTF-8", **variables},
                          capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@settings(max_examples=40, deadline=None)
@given(before=PRINTABLE, after=PRINTABLE)
def test_a_shell_expands_a_text_to_one_word(before: str, after: str) -> None:
    text = join(before, Variable("value"), after)
    assert words(shell_source(text), value=VALUE) == [f"{before}{VALUE}{after}"]


def test_a_word_that_depends_on_a_variable_is_there_only_if_it_is_set() -> None:
    source = shell_source(IfSet("userns", "--userns"))
    assert words(f"first {source}", userns="yes") == ["first", "--userns"]
    assert words(f"first {source}", userns="") == ["first"]
    lost = shell_source(IfSet("lost", join("--exclude=", Variable("lost"))))
    assert words(lost, lost="n1 n2") == ["--exclude=n1 n2"]


@pytest.mark.parametrize("text", [Variable("x"), Joined(("a", Variable("x"))), IfSet("x", "a")])
def test_what_only_a_script_knows_is_no_plain_text(text: Text) -> None:
    with pytest.raises(ValueError, match="variable"):
        plain(text)


def test_texts_without_variables_become_one_string() -> None:
    assert join("a", "", "b", join("c")) == "abc"
    assert join() == ""
    assert join("a", Variable("x"), "b", "c") == Joined(("a", Variable("x"), "bc"))


def test_control_characters_reach_no_script() -> None:
    with refused("control-characters", kind=UsageError):
        shell_source("a\n#SBATCH --uid=0")


@settings(max_examples=40, deadline=None)
@given(document=st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PRINTABLE, inner, max_size=3),
    max_leaves=8,
))
def test_a_document_comes_out_of_a_here_document_as_it_was(document: object) -> None:
    whole = json_source({"known": document, "open": ShellJson("${value}")})
    done = subprocess.run(["sh", "-c", f"cat <<END\n{whole}\nEND\n"], env={"value": '["$x"]'},
                          capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"known": document, "open": ["$x"]}


@settings(max_examples=40, deadline=None)
@given(path=PRINTABLE, below=PRINTABLE)
@example(path="/plain", below="")
@example(path="/x,y", below='/a"b')
def test_a_script_mounts_as_a_command_does(path: str, below: str) -> None:
    """A mount option with a shell variable expands to the same word as one with its value.

    Otherwise, the verdict of a run from a bundle would find a difference: it compares the
    command that the script ran with the command that is rendered from the launch specification.
    """
    [_, value] = mount_options([Mount(join(Variable("data"), below), "/data")])
    [_, wanted] = mount_options([Mount(path + below, "/data")])
    assert words(shell_source(value), functions(), data=path) == [wanted]


def test_a_mount_of_a_simple_variable_needs_no_function() -> None:
    [_, value] = mount_options([Mount(Variable("DATA", simple=True), "/data", writable=True)])
    assert words(shell_source(value), DATA="/d") == ["type=bind,source=/d,destination=/data"]
