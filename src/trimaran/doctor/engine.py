"""Check Apptainer, and the kernel features, disk space and memory that it needs on a node."""

from __future__ import annotations

from trimaran.doctor import findings, gpus
from trimaran.doctor.findings import Explained, Finding, Level
from trimaran.doctor.situation import Situation
from trimaran.doctor.versions import numbers

BUILD_SPACE_GIB = 8
"""Free disk space in GiB that building the CPU images needs: wheels, unpacked files and SIF."""

MINIMUM = (1, 3)
"""Oldest version of Apptainer that is supported (site/docs/tutorials/installing.md)."""

CAP_SYS_ADMIN = 21
"""Number of the Linux capability with which root mounts an image without a user namespace."""

SQUASHFS_SHARE = 4
"""mksquashfs uses at most the physical memory divided by this number (mksquashfs(1), -mem)."""

FINDINGS: dict[str, Explained] = {
    "apptainer": Explained(
        "engine", "fail",
        "Apptainer is installed and starts. Jobs cannot run without it; `trimaran run` then uses"
        " the host without a container.",
        "load the module of your site (`modules` in the site file), ask for it, or on a Debian"
        " family system: make apptainer",
        "no Apptainer on PATH; a program that fails; SingularityCE on a described machine",
    ),
    "apptainer-options": Explained(
        "engine", "fail",
        "Apptainer has the options that Trimaran uses. Older versions refuse the command of a run.",
        "ask your site for a current version of Apptainer",
        "an Apptainer without --no-eval on a described machine",
    ),
    "modules": Explained(
        "engine", "fail",
        "The environment modules of the site file can be loaded. Otherwise a job ends at once.",
        "correct `modules` of the cluster in the site file: `module avail` lists the names",
        "a module that does not exist",
    ),
    "namespaces": Explained(
        "engine", "fail",
        "The kernel allows user namespaces, or Apptainer is installed with setuid. Otherwise no"
        " container starts.",
        "an administrator allows them by sysctl (user.max_user_namespaces,"
        " kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or"
        " installs apptainer-suid",
        "kernel settings of a described machine",
    ),
    "subuid": Explained(
        "engine", "warn",
        "newuidmap is installed and the user has ranges in /etc/subuid and /etc/subgid. Some images"
        " cannot be built without them; running needs none.",
        "an administrator installs it (Debian: uidmap) and runs: usermod --add-subuids"
        " 100000-165535 --add-subgids 100000-165535 USER",
        "a described machine without newuidmap",
    ),
    "fuse": Explained(
        "engine", "warn",
        "/dev/fuse can be opened. Otherwise Apptainer unpacks the whole SIF at every start.",
        "an administrator runs: chmod 666 /dev/fuse",
        "a described machine without the device",
    ),
    "squashfuse": Explained(
        "engine", "warn",
        "squashfuse is installed with Apptainer or on PATH. Otherwise Apptainer unpacks the whole"
        " SIF at every start.",
        "an administrator installs it (Debian: squashfuse)",
        "a described machine whose Apptainer lacks it",
    ),
    "build-space": Explained(
        "engine", "warn",
        f"The folder for temporary files (APPTAINER_TMPDIR or TMPDIR) has {BUILD_SPACE_GIB} GiB of"
        " free space for building the CPU images.",
        "set APPTAINER_TMPDIR to a folder on another disk",
        "a described machine with a small /tmp",
    ),
    "build-memory": Explained(
        "engine", "warn",
        "The memory limit of this session is larger than a quarter of the physical memory, which"
        " mksquashfs uses for its buffers. Otherwise the kernel may kill a build.",
        "build in a job with more memory, or pull the image: trimaran pull",
        "a described machine with a control group of 4 GiB",
    ),
    **gpus.FINDINGS,
}


def check(situation: Situation) -> list[Finding]:
    """Return the findings about Apptainer and the GPUs of a node."""
    found = [_apptainer(situation), _modules(situation), _options(situation),
             _namespaces(situation), _fuse(situation), _squashfuse(situation)]
    if situation.login is None:  # images are built on this machine only
        found += [_subuid(situation), _build_space(situation), _build_memory(situation)]
    return [one for one in found if one is not None] + gpus.check(situation)


def _finding(identifier: str, level: Level, cause: str, remedy: str = "") -> Finding:
    return findings.found(FINDINGS, identifier, level, cause, remedy)


def _apptainer(situation: Situation) -> Finding | None:
    facts = situation.facts
    path = facts.text("apptainer-path")
    if path is None:
        return None
    if not path:
        if situation.login is None:
            return _finding("apptainer", "warn", "not installed here: runs use the host engine")
        return _finding("apptainer", "fail", "not installed on this node")
    answer, version = facts.facts.get("apptainer-version"), facts.text("apptainer-version")
    if answer is None:
        return None
    if version is None:
        if answer.status in {124, 137}:  # `timeout` has ended it
            return _finding("apptainer", "warn", f"`{path} --version` did not answer within 5 s",
                            "look at the file system of the program, which may hang")
        said = (facts.text("apptainer-said") or "no output").splitlines()[0]
        return _finding("apptainer", "fail", f"`{path} --version` fails: {said}",
                        f"install it again, or remove {path} from PATH")
    if not version.startswith("apptainer"):
        level: Level = "warn" if situation.login is None else "fail"
        return _finding("apptainer", level, f"{path} is {version or 'silent'}, not Apptainer")
    if numbers(version) < MINIMUM:
        return _finding("apptainer", "warn", f"{version}, {path}: Trimaran is tested with"
                        f" {'.'.join(map(str, MINIMUM))} and newer")
    return _finding("apptainer", "ok", f"{version}, {path}")


def _options(situation: Situation) -> Finding | None:
    facts = situation.facts
    if not (facts.text("apptainer-version") or "").startswith("apptainer"):
        return None
    run, build = facts.text("apptainer-exec-lacks"), facts.text("apptainer-build-lacks")
    if run:
        return _finding("apptainer-options", "fail", f"`apptainer exec` lacks {_words(run)}")
    if build and situation.login is None:
        return _finding("apptainer-options", "warn",
                        f"`apptainer build` lacks {_words(build)}: images cannot be built here",
                        "ask your site for a current version, or pull images: trimaran pull")
    return _finding("apptainer-options", "ok", "all that Trimaran uses") if run == "" else None


def _words(text: str) -> str:
    return ", ".join(text.split())


def _modules(situation: Situation) -> Finding | None:
    state = situation.facts.text("modules")
    names = " ".join(situation.cluster.modules) if situation.cluster else ""
    if state is None:
        return None
    if state == "loaded":
        return _finding("modules", "ok", f"{names}: loaded")
    # The login node may lack the modules of the compute nodes.
    level: Level = "warn" if situation.login is None else "fail"
    return _finding("modules", level, f"`module load {names}` fails")


APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"

_SWITCHES = {
    "user.max_user_namespaces": "0", "kernel.unprivileged_userns_clone": "0", APPARMOR: "1",
}
"""A dictionary that maps a kernel setting to a value that forbids user namespaces.

With this value, users other than root cannot create user namespaces.
"""


def _namespaces(situation: Situation) -> Finding | None:
    facts = situation.facts
    if "namespaces" not in facts.facts:
        return None
    settings = facts.under("sysctl")
    off = [name for name, value in _SWITCHES.items() if settings.get(name) == value]
    if facts.text("apptainer-setuid"):
        return _finding("namespaces", "ok", "Apptainer is installed with setuid")
    if facts.text("namespaces") is not None:
        return _finding("namespaces", "ok", "usable")
    if facts.number("uid") == 0 and facts.has_capability(CAP_SYS_ADMIN):
        return _finding("namespaces", "ok", "refused by the kernel, but root needs none")
    if off == [APPARMOR] and (profile := facts.text("apptainer-profile")):
        return _finding("namespaces", "ok", f"{profile} allows them to Apptainer only")
    if facts.facts["namespaces"].status == 127 and not off:
        return None  # the program unshare is missing, and no setting refuses namespaces
    # Only a warning if Apptainer is not installed, because runs then use the host engine, or if the
    # run is a job, because the compute nodes may have other settings.
    needed = facts.text("apptainer-path") and not situation.before_job
    level: Level = "fail" if needed else "warn"
    why = ": " + ", ".join(f"{name} = {_SWITCHES[name]}" for name in off) if off else ""
    return _finding("namespaces", level, f"refused by the kernel{why}")


def _subuid(situation: Situation) -> Finding | None:
    facts = situation.facts
    if facts.text("newuidmap") is None:
        return None
    if not facts.text("newuidmap"):
        return _finding("subuid", "warn", "newuidmap is missing: some images cannot be built here")
    missing = [f"/etc/{name}" for name in ("subuid", "subgid") if not facts.text(name)]
    if missing and facts.number("uid") != 0:
        return _finding("subuid", "warn", f"no range of this user in {' and '.join(missing)}")
    return _finding("subuid", "ok", "newuidmap is installed")


def _fuse(situation: Situation) -> Finding | None:
    state = situation.facts.text("fuse")
    if state is None:
        return None
    if state == "usable":
        return _finding("fuse", "ok", "readable and writable")
    return _finding("fuse", "warn", f"/dev/fuse is {state}: Apptainer unpacks the whole SIF at"
                    " every start (slow)")


def _squashfuse(situation: Situation) -> Finding | None:
    path = situation.facts.text("squashfuse")
    if path is None or not situation.facts.text("apptainer-path"):
        return None
    if path or situation.facts.text("apptainer-setuid"):
        return _finding("squashfuse", "ok", path or "not needed with setuid")
    return _finding("squashfuse", "warn", "missing: Apptainer unpacks the whole SIF at every start"
                    " (slow)")


def _build_space(situation: Situation) -> Finding | None:
    free = situation.facts.number("build-free")
    if free is None:
        return None
    text = f"{free / 2**20:.1f} GiB free in {situation.facts.text('build-folder')}"
    if free >= BUILD_SPACE_GIB * 2**20:
        return _finding("build-space", "ok", text)
    return _finding("build-space", "warn", f"{text}, of {BUILD_SPACE_GIB} for building images")


def _build_memory(situation: Situation) -> Finding | None:
    memory, limit = situation.facts.number("memory"), situation.facts.number("cgroup-memory")
    if memory is None:
        return None
    needed = memory * 1024 // SQUASHFS_SHARE
    if limit is None or limit > needed:
        return _finding("build-memory", "ok", f"{needed / 2**30:.1f} GiB for mksquashfs")
    return _finding("build-memory", "warn", f"this session may use {limit / 2**30:.1f} GiB;"
                    f" mksquashfs uses up to {needed / 2**30:.1f} GiB")
