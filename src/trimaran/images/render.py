"""Render an image definition as `image.def` (Apptainer) and `Dockerfile` with the library hpccm.

Both files are committed, and a test compares them with the rendered text. They are the same on
every machine: base image, revision and date are build arguments, and packages come from a
wheelhouse, which is mounted at /mnt during the build and does not become part of the image.

A framework image that compiles software has two stages: `build`, and the image itself, which copies
only the result of `build`. Apptainer always copies %files before it runs %post. Therefore files
come first in both formats.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimaran import paths
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.images.parts import VENV, App, Build

with warnings.catch_warnings():
    # hpccm's sources have escape sequences for which newer versions of Python print warnings.
    warnings.simplefilter("ignore")
    import hpccm.config
    from hpccm import primitives

FILES = {"image.def": "singularity", "Dockerfile": "docker"}
"""Name of each generated file -> name of its container format in hpccm, such as `docker`."""


def text(image: Image, file: str) -> str:
    """Return the content of `file` ("image.def" or "Dockerfile") for `image`."""
    with container_format(FILES[file]):
        texts = [str(part) for part in parts(image, docker=file == "Dockerfile")]
    return "\n\n".join(text for text in texts if text) + "\n"


def write(image: Image) -> None:
    """Write `image.def` and `Dockerfile` into the image's folder, each file atomically."""
    paths.refuse_installed(image.folder)
    for file in FILES:
        write_atomic(image.folder / file, text(image, file))


def check(image: Image) -> None:
    """Raise UsageError if a committed file differs from the text that `write` writes."""
    written = {image.folder / file: text(image, file) for file in FILES}
    refuse_stale(written, f"trimaran render {image.name}")


def refuse_stale(written: Mapping[Path, str], command: str) -> None:
    """Raise UsageError if a file differs from the text that `command` writes."""
    stale = [
        str(path) for path, text in written.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        raise UsageError(f"not up to date: {', '.join(stale)}", code="file-outdated",
                         hint=f"run `{command}`")


# hpccm ignores unknown arguments, so a misspelt argument would have no effect. Therefore only these
# primitives and arguments are allowed.
_ALLOWED: dict[str, frozenset[str]] = {
    "baseimage": frozenset({"image", "_as", "_bootstrap", "_docker_env", "_distro"}),
    "comment": frozenset({"text", "reformat", "_app"}),
    "copy": frozenset({"files", "_from"}),
    "environment": frozenset({"variables", "_export"}),
    "label": frozenset({"metadata"}),
    "raw": frozenset({"docker", "singularity"}),
    "runscript": frozenset({"commands", "_app"}),
    "shell": frozenset({"commands", "_test"}),
}


def primitive(kind: str, **arguments: Any) -> Any:
    """Return hpccm's primitive `kind`: an object that renders one part of a definition.

    Raises:
        ValueError: The primitive or an argument is not in `_ALLOWED`.
    """
    if kind not in _ALLOWED:
        raise ValueError(f"hpccm primitive '{kind}' is not allowed ({', '.join(_ALLOWED)})")
    unknown = set(arguments) - _ALLOWED[kind]
    if unknown:
        raise ValueError(f"hpccm {kind}: unknown arguments {', '.join(sorted(unknown))}")
    if kind == "comment":
        return primitives.comment(arguments.pop("text"), **arguments)
    return getattr(primitives, kind)(**arguments)


@contextmanager
def container_format(name: str) -> Iterator[None]:
    """Set hpccm's global format within the context, and turn its warnings into ValueError.

    hpccm prints a warning when it drops content.
    """
    before = hpccm.config.g_ctype
    hpccm.config.set_container_format(name)
    hpccm.config.set_singularity_version("3.2")  # the first version with build stages
    logger = logging.getLogger()
    refusal = _Refusal()
    logger.addHandler(refusal)
    try:
        yield
    finally:
        logger.removeHandler(refusal)
        hpccm.config.g_ctype = before


class _Refusal(logging.Handler):
    """A logging handler that raises ValueError for warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise ValueError if HPCCM logs a warning or an error; called for each log message."""
        if record.levelno >= logging.WARNING:
            raise ValueError(f"hpccm: {record.getMessage()}")


WHEELHOUSE = "/mnt"
"""Mount point of the wheelhouse during a build; the folder exists in every base image."""

COMPILED = f"{WHEELHOUSE}/compiled"
"""Mount point of the folder of compiled objects (see `compiled`) during a build."""

STAGE = "/opt/stage"
"""Output folder of the first build stage.

Its `bin` and `lib` are copied into the virtual environment of the image.
"""

_PIP_OPTIONS = (
    " --no-index --no-deps --no-cache-dir --no-compile --disable-pip-version-check"
    " --root-user-action=ignore"
)
# Bytecode has no time stamps, so the same wheels give the same files. Without -B, modules that a
# .pth file imports at the start of Python would get bytecode with time stamps.
_COMPILE_ALL = f"{VENV}/bin/python -B -m compileall -q -j 0 --invalidation-mode unchecked-hash"
# The excluded files have the syntax of newer versions of Python, as their names show.
_COMPILE = f"{_COMPILE_ALL} -x py3[0-9]+_intrinsics"
_CLEAN = (
    "rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache"
    " /var/log/apt /var/log/dpkg.log /var/log/alternatives.log"
)
# Files of an image need neither setuid bits nor write permission for all users. Folders of the host
# that Apptainer mounts during a build (/tmp, /var/tmp, the home folder) are not searched.
_TIGHTEN = (
    "find /etc /opt /run /usr /var -xdev -path /var/tmp -prune -o"
    " '(' -perm /6000 -o -perm -0002 '(' -type d -o -type f ')' ')' -exec chmod ug-s,o-w '{}' +"
)
_PROFILE = "/etc/profile.d/trimaran.sh"

_PREFERRED = {"TRITON_HOME": "TRITON_CACHE_DIR"}
"""Variable of a compiler's cache -> variable that the compiler uses instead, if it is set."""


def parts(image: Image, *, docker: bool) -> Iterator[Any]:
    """Yield hpccm's primitives of one definition, in order."""
    yield primitive("comment", reformat=False, text=(
        f"{image.name}: {image.summary}\n"
        f"Generated by `trimaran render {image.name}` from image.yaml: edit that, not this."
    ))
    if docker:
        # In a Dockerfile, FROM uses the arguments before it, and labels those after it.
        yield primitive("raw", docker=f"ARG BASE={_base(image, docker=True)}")
    if image.build is not None:
        yield from _build_stage(image, image.build, docker=docker)
    yield from _from(image, docker=docker, stage="final" if image.build else None)
    if image.build is not None:
        product = {f"{STAGE}/{name}": f"{VENV}/{name}" for name in ("bin", "lib")}
        yield primitive("copy", _from="build", files=product)
    yield primitive("copy", files=dict(image.files))
    yield primitive("raw", singularity=_section("%help", image.help))
    yield primitive("label", metadata=_labels(image, docker=docker))
    if definition.can_lack_horovod(image):
        name, value = definition.HOROVOD_LABEL, _argument("HOROVOD", docker=docker)
        yield primitive(
            "raw", singularity=_section("%labels", f"{name} {value}"),
            docker=f'# hadolint ignore=DL3050\nLABEL {name}="{value}"',  # other images lack it
        )
    yield from _packages(image)
    if image.app is not None:
        yield from _brought(image)
        yield from _own_packages(image, image.app)
    # Variables follow the installation, so that they do not affect RUN steps of a Dockerfile.
    variables = definition.environment(image)
    if definition.can_lack_horovod(image):  # for the self-test
        variables["TRIMARAN_HOROVOD"] = _argument("HOROVOD", docker=docker)
    yield primitive("environment", _export=False, variables={
        key: f'"{value}"' for key, value in variables.items()
    })
    yield primitive("raw", singularity=_section("%environment", _against_the_host(image)))
    yield from _entry_points(image)
    if not docker:  # Dockerfiles have no SCIF apps
        yield from _scif(image)


def _base(image: Image, *, docker: bool) -> str:
    """Return the default of the build argument BASE, which names the image to build on."""
    if image.base is None:
        return f"localhost/trimaran/{image.framework}" if docker else f"{image.framework}.sif"
    if image.base.digest is None:
        return image.base.image
    return f"{image.base.image.rpartition(':')[0]}@{image.base.digest}"


def _from(image: Image, *, docker: bool, stage: str | None) -> Iterator[Any]:
    """Yield the head of a stage: its base image and its build arguments."""
    name = image.base.image if image.base else str(image.framework)
    digest = (image.base.digest if image.base else None) or "unknown"
    arguments = {
        "BASE_NAME": name, "BASE_DIGEST": digest,
        "CREATED": "unknown", "REVISION": "unknown", "SOURCE": "unknown",
    }
    own = {"HOROVOD": "yes"} if definition.can_lack_horovod(image) else {}
    arguments = own if stage == "build" else {**arguments, **own}
    named = {"_as": stage} if stage else {}
    if docker:
        yield primitive("baseimage", image="${BASE}", _distro="ubuntu", **named)
        if arguments:
            yield primitive("raw", docker="\n".join(f"ARG {k}={v}" for k, v in arguments.items()))
        return
    bootstrap = {"BOOTSTRAP": "docker" if image.base is not None else "localimage"}
    yield primitive(
        "baseimage", image="{{ BASE }}", _bootstrap="{{ BOOTSTRAP }}", _docker_env=False,
        _distro="ubuntu",  # hpccm lacks Debian; no used primitive depends on this
        **named,
    )
    everything = {**bootstrap, "BASE": _base(image, docker=False), **arguments}
    lines = "\n".join(f"{k}={v}" for k, v in everything.items())
    yield primitive("raw", singularity=_section("%arguments", lines))


def _build_stage(image: Image, build: Build, *, docker: bool) -> Iterator[Any]:
    yield from _from(image, docker=docker, stage="build")
    if build.check is not None and image.python is not None:
        yield primitive("comment", text=(
            "The check of the base image, before anything is installed on it."
        ))
        settings = {**build.environment, "PYTHON": image.python.base or "python3"}
        yield _shell([f"{_variables(settings)}python3 {WHEELHOUSE}/build/{build.check} base"])
    yield from _packages(image, building=True)
    yield primitive("comment", text=(
        "The script of this stage; `bin` and `lib` of what it leaves go into the image."
    ))
    settings = dict(build.environment)
    if build.optional:
        settings["HOROVOD"] = _argument("HOROVOD", docker=docker)
    yield _shell([f"{_variables(settings)}sh {WHEELHOUSE}/build/{build.script}"])


def _variables(settings: Mapping[str, str]) -> str:
    """Return the assignments before a shell command that gives it these variables."""
    return "".join(f'{key}="{value}" ' for key, value in sorted(settings.items()))


def _packages(image: Image, *, building: bool = False) -> Iterator[Any]:
    """Yield the commands that install the Debian packages and wheels of a framework image."""
    if image.python is None:
        return
    if image.debian:
        yield primitive("comment", text=(
            f"Debian packages: exactly those of debian.lock{' and build-debian.lock' * building}."
        ))
        extra = f" {WHEELHOUSE}/build/debs/*.deb" if image.build and image.build.debian else ""
        yield _shell([
            "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends"
            # apt must not use package sources; in the build, it cannot change to the user _apt.
            " --allow-downgrades -o Dir::Etc::sourcelist=/dev/null"
            " -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root"
            f" {WHEELHOUSE}/debs/*.deb{extra if building else ''}",
            _CLEAN,
        ])
    yield primitive("comment", text=(
        "Python wheels: exactly those of requirements.lock; pip refuses any other hash."
    ))
    site = f"{VENV}/lib/python{image.python.version}/site-packages"
    commands = [f"{image.python.base or 'python3'} -m venv --without-pip {VENV}"]
    if image.python.base:  # the environment also imports the packages of the base
        program = "import site; print(*site.getsitepackages(), sep=chr(10))"
        commands.append(f"{image.python.base} -c '{program}' > {site}/base.pth")
    commands.append(
        f"{_pip(image)} --require-hashes --find-links {WHEELHOUSE}/wheels"
        f" --requirement {WHEELHOUSE}/requirements.lock"
    )
    if not building:
        if image.python.remove:  # rm fails if a file is missing
            commands.append(" ".join(["rm -r", *(f"{site}/{p}" for p in image.python.remove)]))
        if others := image.python.remove_where_present:
            commands.append(" ".join(["rm -rf", *(f"{site}/{p}" for p in others)]))
        commands += [f"{_COMPILE} {site}", *_finish(image)]
    yield _shell(commands)


def _finish(image: Image) -> list[str]:
    """Return the last commands of an installation, which set login PATH and file permissions."""
    # /etc/profile replaces PATH in login shells.
    path = f"echo 'PATH={image.environment['PATH']}' > {_PROFILE}"
    return [*([path] if "PATH" in image.environment else []), _TIGHTEN]


def _brought(image: Image) -> Iterator[Any]:
    """Yield the commands that install the wheels in the lock of an app image, if it has a lock."""
    if definition.wheels_lock(image) is None:
        return
    yield primitive("comment", text=(
        "What the framework image lacks: exactly the wheels of requirements.lock."
    ))
    lock = f"{WHEELHOUSE}/apps/requirements.lock"
    site = f"{VENV}/lib/python{definition.interpreter(image).version}/site-packages"
    yield _shell([
        f"{_pip(image)} --require-hashes --find-links {WHEELHOUSE}/wheels --requirement {lock}",
        # Only files of these wheels are newer than the lock.
        f"find {site} -name '*.py' -newer {lock} -exec {_COMPILE_ALL} '{{}}' +",
    ])


def _own_packages(image: Image, app: App) -> Iterator[Any]:
    yield primitive("comment", text=(
        "Packages of this repository; what they need is in the framework image."
    ))
    folders = [f"{VENV}/lib/python*/site-packages/{p.replace('-', '_')}" for p in app.packages]
    yield _shell([
        f"{_pip(image)} {WHEELHOUSE}/apps/*.whl",
        # Without folders, compileall would compile all packages of the framework image again.
        " ".join([_COMPILE, *folders]),
    ])


def _shell(commands: list[str]) -> Any:
    """Return one build step; it sets the umask, because Apptainer's umask lets the group write."""
    return primitive("shell", commands=["umask 022", *commands])


def _pip(image: Image) -> str:
    """Return the shell command of a pip that is not part of the image's virtual environment."""
    python = definition.chain(image)[0].python
    if python is not None and python.base is not None:
        return f"{python.base} -m pip --python {VENV}/bin/python install{_PIP_OPTIONS}"
    wheel = "PYTHONPATH=$(echo /usr/share/python-wheels/pip-*.whl)"
    return f"{wheel} {VENV}/bin/python -m pip install{_PIP_OPTIONS}"


def _argument(name: str, *, docker: bool) -> str:
    """Return how a definition refers to the build argument `name`."""
    return f"${{{name}}}" if docker else f"{{{{ {name} }}}}"


def _labels(image: Image, *, docker: bool) -> dict[str, str]:
    def argument(name: str) -> str:
        return _argument(name, docker=docker)

    labels = {
        "title": image.name,
        "description": " ".join(image.description.split()),
        "version": image.version,
        "licenses": image.licenses,
        "source": argument("SOURCE"),
        "revision": argument("REVISION"),
        "created": argument("CREATED"),
        "base.name": argument("BASE_NAME"),
        "base.digest": argument("BASE_DIGEST"),
    }
    quote = '"' if docker else ""  # %labels uses the rest of the line verbatim
    # Without it, Apptainer inserts the current time, and builds of equal inputs would differ.
    own = {} if docker else {"org.label-schema.build-date": argument("CREATED")}
    return own | {
        f"org.opencontainers.image.{key}": f"{quote}{value}{quote}"
        for key, value in labels.items()
    }


def _against_the_host(image: Image) -> str:
    """Return variables that keep settings and /tmp of the host out of Apptainer's container."""
    # The variables are empty, not unset: Apptainer restores the host's value of an unset variable.
    # APPTAINERENV_PYTHONPATH, which a user sets on purpose, takes effect afterwards; likewise
    # APPTAINERENV_TRITON_HOME and the variables of all other caches.
    lines = [f'export {name}=""' for name in ("PYTHONHOME", "PYTHONPATH")]
    if caches := definition.caches(image):
        lines.append('if [ -w "$HOME" ]; then caches="$HOME/.cache"; else caches=$(mktemp -d); fi')
    lines += [f'export {name}="$caches/{folder}"' for name, folder in sorted(caches.items())]
    if compiled := definition.compiler_caches(image):
        script = Path(__file__).with_name("compiler_caches.sh").read_text(encoding="utf-8")
        lines += script.rstrip("\n").splitlines()
        folders = sorted(set(compiled.values()))
        lines.append("mkdir -p " + " ".join(f'"$compiled/{folder}"' for folder in folders))
    lines += [f'export {name}="$compiled/{folder}"' for name, folder in sorted(compiled.items())]
    # Apptainer removes a variable of the host that is empty here. Without `export`, the program
    # does not get the empty variable if the host has none.
    own = definition.environment(image)
    lines += [f'{other}=""' for name, other in _PREFERRED.items()
              if name in compiled and other not in own]
    return "\n".join(lines)


def _entry_points(image: Image) -> Iterator[Any]:
    entry = definition.entry(image)
    words = [f"{VENV}/bin/python", *(["-m", entry.module] if entry else [])]
    # hpccm's runscript adds `exec` and "$@".
    yield primitive("runscript", commands=[" ".join(words)])
    test = " ".join([f"exec {VENV}/bin/python", *definition.self_test(image)])
    yield primitive("raw", singularity=_section("%test", test))


def _scif(image: Image) -> Iterator[Any]:
    entry = definition.entry(image)
    if entry is None:
        return
    for verb, about in entry.verbs.items():
        words = f"{VENV}/bin/python -m {entry.module} {verb}"
        yield primitive("runscript", _app=verb, commands=[words])
        yield primitive("comment", _app=verb, text=f"    {verb}: {about}")


def _section(title: str, body: str) -> str:
    lines = [f"    {line}".rstrip() for line in body.rstrip("\n").splitlines()]
    return "\n".join([title, *lines])
