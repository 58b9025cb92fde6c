"""Train a small network with Horovod: mpirun -n 2 python torch_horovod.py FILE.npz."""

import sys
import zlib

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH, EPOCHS = 128, 3

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
if torch.cuda.is_available():  # one GPU for each rank
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(17)
data = np.load(sys.argv[1])
images = torch.from_numpy(data["images"]).unsqueeze(1).float() / 255
labels = torch.from_numpy(data["labels"]).long()
dataset = TensorDataset(images, labels)
sampler = DistributedSampler(dataset, ranks, rank, seed=17, drop_last=True)
batches = DataLoader(dataset, BATCH // ranks, sampler=sampler, drop_last=True)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2), nn.GELU(),
    nn.Conv2d(16, 32, 3, stride=2), nn.GELU(),
    nn.Flatten(), nn.Linear(32 * 6 * 6, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=device)
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    mean = hvd.allreduce(total / len(batches))  # the mean over all ranks
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {mean:.6f}")

if rank == 0:
    torch.save(model.state_dict(), "model.pt")
checksum = zlib.crc32(b"".join(w.cpu().numpy().tobytes() for w in model.state_dict().values()))
print(f"rank {rank}: loss {mean:.6f}  weights {checksum:08x}")
