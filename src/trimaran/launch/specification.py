"""The launch specification: all values that determine the command of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimaran.errors import UsageError
from trimaran.images.reference import ImageReference
from trimaran.launch.words import Text, Word, plain, shell_source


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host in the container; read-only unless `writable`.

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
        options: further options of the engine, such as those for GPUs.
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
        image: image reference.
        node: the parts that depend on the machine.
        mounts: folders and files of the host in the container.
        environment: variables of the app.
        workdir: working directory in the container.
        module: Python module of the app; None: the entry point of the image gets the arguments.
        launcher: words that start the ranks inside the container, including the interpreter; ():
            the entry point of the image runs.
        arguments: verb and options of the app.
        overlay: folder or file system image to mount over the image, read-only.
        task_starter: words that start the tasks, one container each: srun, mpirun or jsrun.
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

    def with_arguments(self, *more: str) -> LaunchSpec:
        """Return a copy of the specification with `more` arguments of the app at the end."""
        return replace(self, arguments=(*self.arguments, *more))

    @property
    def in_container(self) -> tuple[str, ...]:
        """The launcher and the app's module, as words of the container; () without a launcher.

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
