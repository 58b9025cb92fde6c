"""Run a Slurm cluster of two nodes on this machine as an ordinary user, for learning and tests.

    python scripts/cluster.py start   # start a controller and the nodes n1 and n2; print usage
    python scripts/cluster.py env     # print the line by which a shell uses the cluster
    python scripts/cluster.py stop

The cluster consists of Debian's munge, slurmctld and slurmd, with their own configuration, keys,
logs and ports in one folder. A Slurm installation of the system is neither used nor changed. Both
nodes are this machine; each is configured with two cores, whatever their real number.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from trimaran import paths, process
from trimaran.errors import RunError, TrimaranError, UsageError
from trimaran.files import write_atomic

DAEMONS = ("munged", "slurmctld", "slurmd")
NODES = ("n1", "n2")
PACKAGES = "munge slurm-wlm slurm-client libpmix-dev"
FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # an ordinary user's PATH may lack them
LONGEST_SOCKET = 107  # bytes, from sun_path in unix(7)
SECONDS = 30.0

CONFIGURATION = """\
# Written by scripts/cluster.py: two nodes on one host, of one user.
ClusterName=trimaran
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# A job that is put back into the queue begins again once its old credentials have expired, and a
# step whose credential expires before its nodes have it fails: they may be slow under load.
AuthInfo=socket={folder}/munge.sock,cred_expire=15
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# Of each node its own: two slurmd in one TmpFS would share PMIx's folder, and fail.
TmpFS={folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobRequeue=1
PreemptMode=REQUEUE
# A cluster for trials: it begins, ends and notices a lost node within seconds.
KillWait=10
SlurmdTimeout=10
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores} State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cores} State=UNKNOWN
PreemptType=preempt/partition_prio
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=5
# What is in the partition `low` makes room for what is in `high`, and goes on afterwards.
PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""


def main(arguments: list[str]) -> int:
    """Run the command line `arguments`; return the exit code."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(__doc__ or "").split("\n\n")[1],
    )
    parser.add_argument("verb", choices=("start", "stop", "env"))
    parser.add_argument(
        "--folder", type=Path, default=paths.cache("cluster"), help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    try:
        if options.verb == "start":
            start(folder)
            say(f"a Slurm cluster of {len(NODES)} nodes runs in {folder}; for a shell:")
            say(f"  {environment_line(folder)}")
            say("then, for example: srun -N2 hostname; sinfo. `make cluster-stop` ends it.")
        elif options.verb == "env":
            sys.stdout.write(environment_line(folder) + "\n")
        else:
            say("stopped" if stop(folder) else f"no cluster runs in {folder}")
    except TrimaranError as error:
        say(f"error: {error}" + (f"\n  {error.hint}" if error.hint else ""))
        return int(error.exit_code)
    return 0


def say(text: str) -> None:
    """Print to standard error; only the line of `cluster.py env` goes to standard output."""
    sys.stderr.write(text + "\n")


def environment_line(folder: Path) -> str:
    """Return the shell line that makes Slurm's commands use this cluster."""
    return f"export SLURM_CONF={shlex.quote(str(folder / 'slurm.conf'))}"


def start(folder: Path, cores: int = 2) -> None:
    """Start the daemons, and wait until both nodes accept jobs.

    Args:
        folder: the folder of the cluster.
        cores: number of cores with which each node is configured.

    Raises:
        UsageError: Slurm is not installed, or the path of the folder cannot be used for a socket.
        RunError: A daemon did not start; the hint has the end of its log.
    """
    programs = {name: find(name) for name in DAEMONS}
    if len(os.fsencode(folder / "munge.sock")) > LONGEST_SOCKET or set(str(folder)) & set(" ,#%\n"):
        raise UsageError(
            f"{folder} is too long for a socket, or has characters that Slurm does not accept",
            hint="choose a short --folder without spaces",
        )
    if ready(folder):
        return
    stop(folder)
    configure(folder, cores)
    run([programs["munged"], "--force", "--key-file", folder / "munge.key",
         "--socket", folder / "munge.sock", "--pid-file", folder / "munged.pid",
         "--log-file", folder / "munged.log", "--seed-file", folder / "munge.seed"], folder)
    configuration = folder / "slurm.conf"
    run([programs["slurmctld"], "-f", configuration], folder)
    for node in NODES:
        run([programs["slurmd"], "-f", configuration, "-N", node], folder)
    end = time.monotonic() + SECONDS
    while not ready(folder):
        if time.monotonic() > end:
            raise RunError(f"the nodes accept no jobs after {SECONDS:g} s", hint=last_words(folder))
        time.sleep(0.1)


def find(name: str) -> str:
    """Return the path of the daemon `name`; raise UsageError if it is not installed."""
    places = os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS])
    program = shutil.which(name, path=places)
    if program is None:
        raise UsageError(f"{name} is not installed",
                         hint=f"apt-get install --no-install-recommends {PACKAGES}")
    return program


def configure(folder: Path, cores: int) -> None:
    """Write munge's key and the configuration, with free ports."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # the folder contains munge's key
    for name in ("state", *(f"{kind}-{node}" for kind in ("spool", "tmp") for node in NODES)):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    for log in folder.glob("*.log"):
        log.unlink()
    key = folder / "munge.key"
    key.unlink(missing_ok=True)
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    write_atomic(folder / "slurm.conf", CONFIGURATION.format(
        folder=folder, cores=cores, host=socket.gethostname().partition(".")[0],
        ports=free_ports(1 + len(NODES)),
        user=process.run(["id", "-un"], check=RunError).stdout.strip(),
    ))


def free_ports(count: int) -> list[int]:
    """Return `count` free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def run(argv: list[str | Path], folder: Path) -> None:
    """Start a daemon, which puts itself into the background."""
    done = process.run([str(word) for word in argv], cwd=folder)
    if done.returncode != 0:
        raise RunError(f"{Path(argv[0]).name} failed to start: {done.stderr.strip()}",
                       hint=last_words(folder))


def ready(folder: Path) -> bool:
    """Return whether the cluster of this folder runs and its nodes accept jobs."""
    if not (folder / "slurm.conf").exists():
        return False
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    words = ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%t"]
    done = process.run(words, env=env)
    states = done.stdout.split()
    return len(states) == len(NODES) and set(states) <= {"idle", "mix", "alloc", "comp"}


def stop(folder: Path) -> bool:
    """Stop the daemons and their jobs; return whether any daemon was running."""
    if found := pids(folder):
        env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        process.run(["timeout", "10", "scancel", "--full", "--signal=KILL", "--state=RUNNING",
                     f"--user={os.getuid()}"], env=env)
    for names in (DAEMONS[1:], DAEMONS):  # Slurm's daemons need munged until they end
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids(folder, names):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            end = time.monotonic() + SECONDS / 3
            while pids(folder, names) and time.monotonic() < end:
                time.sleep(0.1)
    return bool(found)


def pids(folder: Path, names: Sequence[str] = DAEMONS) -> list[int]:
    """Return the process ids of this cluster's daemons, whose arguments name its folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            name = Path(os.fsdecode(words[0])).name
            if name in names and any(w.startswith(os.fsencode(folder) + b"/") for w in words):
                found.append(int(place.name))
    return found


def last_words(folder: Path) -> str:
    """Return the last lines of each log."""
    found = []
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()[-3:]
        found += [f"{log.name}: {line}" for line in lines]
    return "\n".join(found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
