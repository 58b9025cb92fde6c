"""The launch specification: all that decides which command a run executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimaran.errors import UsageError
from trimaran.images.reference import ImageReference
from trimaran.launch.words import Text, Word, plain, shell_source


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host that the container sees; read-only unless `writable`.

    Attributes:
        source: its path on the host.
        target: where the container sees it.
        image: whether `source` is a file system image, whose content is shown.
    """

    source: Text
    target: str
    writable: bool = False
    image: bool = False


@dataclass(frozen=True)
class Node:
    """What a command takes from the machine that runs it.

    Attributes:
        program: the engine's executable; of the host engine its Python.
        image: where the machine has the image: a file, a name in the engine's storage, or the
            folder of a virtual environment.
        global_options: of the engine, in front of its verb.
        options: of the engine, such as those that show GPUs.
        environment: the variables of the engine's own process; of the host engine those that
            the app gets besides its own.
    """

    program: Text
    image: Text
    global_options: tuple[Word, ...] = ()
    options: tuple[Word, ...] = ()
    environment: Mapping[str, Text] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchSpec:
    """One run of an app.

    Attributes:
        image: which image, and by which engine.
        node: what only the machine knows.
        mounts: what the container sees of the host.
        environment: variables of the app.
        workdir: the working directory, in the container.
        module: the app's Python module; None: the image's entry point takes the arguments.
        launcher: what starts the ranks inside the container, up to and with the interpreter; ():
            the entry point of the image is run.
        arguments: of the app: its verb and options.
        overlay: folder or file system image that is laid over the image, read-only.
        task_starter: what starts the tasks, each with its own container: srun, mpirun or jsrun.
        shared_node: whether containers of other tasks are on the same node; they share /dev/shm.
        site_options: of the engine, from the site file.
        site_environment: variables of the app from the site file; those of the run win.
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
        """Return the specification with more arguments for the app, at the end."""
        return replace(self, arguments=(*self.arguments, *more))

    @property
    def in_container(self) -> tuple[str, ...]:
        """The words that the launcher runs inside the container; () without a launcher.

        Raises:
            UsageError: the image has no app to launch.
        """
        if not self.launcher:
            return ()
        if self.module is None:
            raise UsageError(f"{self.image.name} has no app to launch")
        return (*self.launcher, "-m", self.module)


@dataclass(frozen=True)
class Command:
    """What is executed, exactly: argument list and the whole environment of the process."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandLine:
    """A rendered specification: the words of a command and the variables of its process."""

    words: tuple[Word, ...]
    environment: Mapping[str, Text]

    def command(self) -> Command:
        """Return it as an argument list.

        Raises:
            ValueError: a word is known only to a script.
        """
        return Command(
            tuple(map(plain, self.words)),
            {name: plain(value) for name, value in self.environment.items()},
        )

    def shell_words(self) -> list[str]:
        """Return the words as shell source."""
        return [shell_source(word) for word in self.words]
