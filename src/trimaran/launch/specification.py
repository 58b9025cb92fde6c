"""The launch specification: all values that determine the command of a run.

`EngineImage` and `ImageReference` have the fields that all models of images share. They are
dataclasses. The model of an image in a file inherits from one of them and from pydantic's
`BaseModel`, and declares only additional fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from trimaran.errors import UsageError
from trimaran.process import quoted


@dataclass(frozen=True)
class EngineImage:
    """An image, identified by the name of its definition and by its engine.

    Attributes:
        name: name of the image definition (`resnet-imagenet-torch-cpu`).
        engine: name of the engine that holds the image.
    """

    name: str
    engine: str


@dataclass(frozen=True)
class ImageReference(EngineImage):
    """An image on one machine.

    Attributes:
        reference: SIF path, OCI image reference or virtual environment folder.
        digest: `sha256:...` of the SIF file or of the OCI manifest; None on the host, and for
            an image that is not built yet.
        inputs: SHA-256 over all inputs of the image (definition, locks, sources, base).
    """

    reference: str
    digest: str | None
    inputs: str

    @property
    def image(self) -> ImageReference:
        """This reference as a plain `ImageReference`, without the fields that a subclass adds."""
        return ImageReference(self.name, self.engine, self.reference, self.digest, self.inputs)


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host that is mounted in the container; read-only unless `writable`.

    Attributes:
        source: path on the host.
        target: path in the container.
        writable: whether the container may write to it.
        image: whether `source` is a file system image, whose content is mounted.
    """

    source: Text
    target: str
    writable: bool = False
    image: bool = False


@dataclass(frozen=True)
class Node:
    """The parts of a command that depend on the machine.

    Attributes:
        program: executable of the engine; for the host engine, the Python interpreter.
        image: location of the image: a file, a name in the engine's storage, or the folder of a
            virtual environment.
        global_options: options of the engine before its subcommand.
        options: further options of the engine, such as options for GPUs.
        environment: variables of the engine's process; for the host engine, additional variables
            of the app.
    """

    program: Text
    image: Text
    global_options: tuple[Word, ...] = ()
    options: tuple[Word, ...] = ()
    environment: Mapping[str, Text] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchSpec:
    """The launch of one run of an app.

    Attributes:
        image: the image to run.
        node: the values that depend on the machine, such as the path of the engine.
        mounts: folders and files of the host in the container.
        environment: variables of the app.
        workdir: working directory in the container.
        module: Python module of the app; None: the entry point of the image gets the arguments.
        launcher: words that start the ranks inside the container, including the interpreter; ():
            the entry point of the image runs.
        arguments: verb and options of the app.
        overlay: folder or file system image to mount over the image, read-only.
        task_starter: words that start the tasks, such as srun; each task is one container.
        shared_node: whether containers of other tasks are on the same node and share /dev/shm.
        site_options: options of the engine from the site file.
        site_environment: variables of the app from the site file; `environment` takes precedence.
    """

    image: ImageReference
    node: Node
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    module: str | None = None
    launcher: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    overlay: str | None = None
    task_starter: tuple[Word, ...] = ()
    shared_node: bool = False
    site_options: tuple[str, ...] = ()
    site_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_container(self) -> tuple[str, ...]:
        """The launcher and the app module that the container starts, as a list of arguments.

        The result is () if `launcher` is empty.

        Raises:
            UsageError: The image contains no app.
        """
        if not self.launcher:
            return ()
        if self.module is None:
            raise UsageError(f"the image {self.image.name} contains no app to launch",
                             code="app-missing", hint="name the image of an app")
        return (*self.launcher, "-m", self.module)


@dataclass(frozen=True)
class Command:
    """A command to execute: argument list and complete environment of the process."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandLine:
    """A rendered specification: the words of a command and the variables of its process."""

    words: tuple[Word, ...]
    environment: Mapping[str, Text]

    def command(self) -> Command:
        """Return the command as an argument list.

        Raises:
            ValueError: A word contains a shell variable.
        """
        return Command(
            tuple(map(plain, self.words)),
            {name: plain(value) for name, value in self.environment.items()},
        )

    def shell_words(self) -> list[str]:
        """Return the words as shell source."""
        return [shell_source(word) for word in self.words]


@dataclass(frozen=True)
class Variable:
    """A variable in a shell script, whose value is unknown until the script runs.

    Attributes:
        name: name of the variable.
        simple: whether its value never contains a comma or a quotation mark.
    """

    name: str
    simple: bool = False


@dataclass(frozen=True)
class CsvField:
    """A text as a field of comma-separated values, which the script quotes where necessary.

    A script with this field needs the function `csv_field` of `run/functions.sh`.
    """

    text: Text


Part: TypeAlias = str | Variable | CsvField


@dataclass(frozen=True)
class Joined:
    """One word of a command, joined from strings, variables and fields.

    A field is quoted as in CSV if necessary, as in `--mount type=bind,src=...`.
    """

    parts: tuple[Part, ...]


Text: TypeAlias = Part | Joined


@dataclass(frozen=True)
class IfSet:
    """A word that is part of the command only if a shell variable is set and not empty."""

    variable: str
    word: Text


Word: TypeAlias = Text | IfSet


@dataclass(frozen=True)
class ShellJson:
    """Shell source that expands to a JSON value, for a JSON document that a script writes."""

    source: str


def join(*texts: Text) -> Text:
    """Return the concatenation of `texts`.

    It is a string if all `texts` are strings; otherwise, it also contains the shell variables and
    CSV fields of `texts`, unchanged.
    """
    parts: list[Part] = []
    for text in texts:
        for part in pieces(text):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part != "":
                parts.append(part)
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 else Joined(tuple(parts))


def pieces(text: Text) -> tuple[Part, ...]:
    """Return the parts of a word of a command in order: strings, shell variables, CSV fields.

    CSV fields are quoted as in CSV, for options such as `--mount type=bind,src=...`.
    """
    return text.parts if isinstance(text, Joined) else (text,)


def plain(word: Word) -> str:
    """Return `word` as a string.

    Raises:
        ValueError: The word has a variable, whose value is known only in the script.
    """
    if not isinstance(word, str):
        raise ValueError(f"the word contains a shell variable: {word}")
    return word


def shell_source(word: Word) -> str:
    """Return `word` as shell source, quoted so that the shell expands it to exactly one word.

    An `IfSet` expands to no word if its shell variable is not set or is empty.

    Raises:
        UsageError: The word has control characters.
    """
    if isinstance(word, IfSet):
        source = shell_source(word.word)
        return f"${{{word.variable}:+{source}}}"
    return "".join(_part_source(part) for part in pieces(word) if part != "") or "''"


def _part_source(part: Part) -> str:
    if isinstance(part, Variable):
        return f'"${part.name}"'
    if isinstance(part, CsvField):
        return f'"$(csv_field {shell_source(part.text)})"'
    return quote(part)


def quote(word: object) -> str:
    """Return a string as quoted shell source on one line.

    Raises:
        UsageError: The string has control characters; a line break could become a directive of a
            batch system.
    """
    text = str(word)
    if any(ord(character) < ord(" ") or ord(character) == 127 for character in text):
        raise UsageError(f"a script cannot contain control characters: {text!r}",
                         code="control-characters")
    return quoted(text)


def json_source(value: object, indent: int = 0) -> str:
    """Return a JSON document as the text of a here-document in a shell script.

    `ShellJson` values are kept as shell source, which expands when the script runs; all other
    values are escaped.
    """
    inner, outer = " " * (indent + 2), " " * indent
    if isinstance(value, ShellJson):
        return value.source
    if isinstance(value, Mapping) and value:
        rows = [f"{inner}{_literal(str(key))}: {json_source(item, indent + 2)}"
                for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        rows = [f"{inner}{json_source(item, indent + 2)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{outer}]"
    return _literal(value)


def _literal(value: object) -> str:
    """Return a JSON value for a here-document; backslashes, `$` and backquotes are escaped."""
    return re.sub(r"[\\$`]", r"\\\g<0>", json.dumps(value))


def host_command(spec: LaunchSpec) -> CommandLine:
    """Return the command that runs the app of `spec` without a container."""
    module = () if spec.module is None else ("-m", spec.module)
    # PATH begins with the programs of the environment, so the name of the launcher is sufficient.
    words: tuple[Text, ...] = spec.in_container or (spec.node.program, *module)
    return CommandLine(
        (*words, *spec.arguments),
        # HOME is the run directory, so that the app does not use files of the user.
        {**spec.node.environment, "HOME": spec.workdir, **spec.environment},
    )
