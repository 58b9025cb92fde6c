"""Measure one operation of MPI by a plain loop in Python, as plain_mpi.c does in C.

    mpirun -n 2 python -m baselines.plain_mpi4py all-reduce 4 1000 9
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

from sidebyside.timing import print_rate


def main() -> None:
    """Print the calls per second; the arguments are the same as for plain_mpi.c."""
    operation, size, calls, repetitions = sys.argv[1], *map(int, sys.argv[2:])
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    sent = np.full(size // 4, rank + 1, np.float32)
    got = np.zeros_like(sent)
    seconds = []
    for _ in range(1 + repetitions):
        world.Barrier()
        start = time.perf_counter()
        if operation == "all-reduce":
            for _ in range(calls):
                world.Allreduce(sent, got)
        else:
            for _ in range(calls):
                if rank == 0:
                    world.Send(sent, 1)
                world.Recv(got, 1 - rank)
                if rank == 1:
                    world.Send(sent, 0)
        own = (time.perf_counter() - start) / calls
        seconds.append(world.allreduce(own, MPI.MAX) if operation == "all-reduce" else own / 2)
    if rank == 0:
        print_rate(1 / statistics.median(seconds[1:]))


if __name__ == "__main__":
    main()
