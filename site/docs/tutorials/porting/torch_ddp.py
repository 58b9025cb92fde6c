"""Train a small network with DDP: torchrun --nproc-per-node 2 torch_ddp.py FILE.npz."""

import os
import sys
import time
import zlib

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH, EPOCHS = 128, 3

distributed.init_process_group()  # NCCL for tensors on GPUs, Gloo for those on CPUs
rank, ranks = distributed.get_rank(), distributed.get_world_size()
if torch.cuda.is_available():  # one GPU for each rank
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
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
replica = DistributedDataParallel(model)  # sends the weights of rank 0 to all ranks
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=device)
    for x, y in batches:
        loss = nn.functional.cross_entropy(replica(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    distributed.all_reduce(total)  # the sum over all ranks
    mean = total / len(batches) / ranks
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {mean:.6f}")

if rank == 0:
    torch.save(model.state_dict(), "model.pt")
checksum = zlib.crc32(b"".join(w.cpu().numpy().tobytes() for w in model.state_dict().values()))
print(f"rank {rank}: loss {mean:.6f}  weights {checksum:08x}")
distributed.destroy_process_group()
time.sleep(0.5)  # a thread of Gloo that still works while Python exits would abort the process
