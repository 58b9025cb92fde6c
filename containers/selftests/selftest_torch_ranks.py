"""One rank of the self-test: check collectives of Horovod and MPI, and the mean of gradients.

Arguments: the number of ranks that were started, and the device of the tensors (cpu, gpu).
"""

# ruff: noqa: S101 - a self-test uses assert
import sys

import horovod.torch as hvd
import torch
from selftest_common import check_mpi


def check_collectives(size: int, device: torch.device) -> None:
    """Check all-reduce, all-gather and broadcast of Horovod against results that are known."""
    rank = hvd.rank()
    assert hvd.size() == size, f"started as {hvd.size()} ranks instead of {size}"
    total = hvd.allreduce(torch.full((1000,), float(rank + 1), device=device), op=hvd.Sum)
    assert total.device.type == device.type
    assert total.cpu().eq(size * (size + 1) / 2).all(), total[0]
    assert hvd.allgather(torch.tensor([rank], device=device)).tolist() == list(range(size))
    assert hvd.broadcast(torch.tensor([rank + 5], device=device), size - 1).item() == size + 4


def check_gradients(size: int, device: torch.device) -> None:
    """Check that a step of the distributed optimizer uses the mean of the ranks' gradients."""
    weight = torch.nn.Parameter(torch.zeros(3, device=device))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("weight", weight)]
    )
    (weight.sum() * float(hvd.rank() + 1)).backward()  # gradients 1, 2, …
    optimizer.step()
    assert weight.detach().cpu().eq(-(size + 1) / 2).all(), weight


if __name__ == "__main__":
    hvd.init()
    ranks, on = int(sys.argv[1]), torch.device("cpu")
    if sys.argv[2] == "gpu":
        on = torch.device("cuda", hvd.local_rank())
        torch.cuda.set_device(on)
    check_collectives(ranks, on)
    check_gradients(ranks, on)
    if hvd.mpi_enabled():
        check_mpi(ranks)
    hvd.shutdown()
