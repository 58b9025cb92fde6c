"""The command line: `python -m collectives measure|qualify|plot`."""

from __future__ import annotations

import sys

from collectives.settings import MeasureSettings, QualifySettings
from trainkit import commands

EXAMPLES = {
    "measure": """examples:
  # two ranks on this node: MPI, torch.distributed with Gloo, Horovod over MPI
  mpirun -n 2 python -m collectives measure --out run --library mpi
  torchrun --standalone --nproc-per-node 2 -m collectives measure --out run
  mpirun -n 2 python -m collectives measure --out run --library horovod

  # the all-reduce of eight GPUs, as the published values of NCCL
  torchrun --standalone --nproc-per-node 8 -m collectives measure --out run \\
      --operations all-reduce --min-bytes 1MiB --max-bytes 8GiB

  # latency and bandwidth between the first and the last rank, in half precision
  mpirun -n 2 python -m collectives measure --out run --library mpi \\
      --operations latency,bandwidth --dtype float16

exit codes: 0 done, 2 bad arguments, one rank only, or sizes beyond the memory, 69 another rank was
lost or hangs, 70 wrong result of an operation""",
    "qualify": """examples:
  # the devices of this node, with one rank for each
  torchrun --standalone --nproc-per-node 8 -m collectives qualify --out run

  # two ranks on this CPU, in ten seconds
  torchrun --standalone --nproc-per-node 2 -m collectives qualify --out run --seconds 10

exit codes: 0 done, 2 bad arguments, 69 another rank was lost or hangs, 70 wrong result of an
all-reduce""",
    "plot": """examples:
  python -m collectives plot --out run
  python -m collectives plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "measure": (MeasureSettings, "measure operations between ranks, and check their results"),
    "qualify": (QualifySettings, "measure devices, memory, network and storage quickly"),
    "plot": (commands.PLOT[0], "draw times, bandwidths and fitted models of finished runs"),
}
main = commands.entry_point(
    "collectives", "Collective operations and messages between ranks, measured and checked.",
    COMMANDS, EXAMPLES,
)

if __name__ == "__main__":
    sys.exit(main())
