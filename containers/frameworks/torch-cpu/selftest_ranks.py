"""One rank of the self-test: Horovod and MPI agree on sums, and gradients are averaged."""

# ruff: noqa: S101 - a self-test asserts
import horovod.torch as hvd
import torch


def check_collectives() -> None:
    """All-reduce, all-gather and broadcast give what every rank can compute by itself."""
    rank, size = hvd.rank(), hvd.size()
    assert size == 2, f"started as {size} ranks instead of 2"
    total = hvd.allreduce(torch.full((1000,), float(rank + 1)), op=hvd.Sum)
    assert torch.equal(total, torch.full((1000,), 3.0)), total[0]
    assert hvd.allgather(torch.tensor([rank])).tolist() == [0, 1]
    assert hvd.broadcast(torch.tensor([rank + 5]), root_rank=1).item() == 6


def check_gradients() -> None:
    """A step of the distributed optimizer uses the mean of the ranks' gradients."""
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("weight", weight)]
    )
    (weight.sum() * float(hvd.rank() + 1)).backward()  # gradients 1 and 2, mean 1.5
    optimizer.step()
    assert torch.equal(weight.detach(), torch.full((3,), -1.5)), weight


def check_mpi() -> None:
    """mpi4py finds the same Open MPI that Horovod was built with."""
    from mpi4py import MPI

    assert MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1) == 3


if __name__ == "__main__":
    hvd.init()
    check_collectives()
    check_gradients()
    if hvd.mpi_enabled():
        check_mpi()
    hvd.shutdown()
