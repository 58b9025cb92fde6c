"""Train a small network in one process with PyTorch: python torch_plain.py FILE.npz."""

import sys
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

BATCH, EPOCHS = 128, 3

device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(17)
data = np.load(sys.argv[1])
images = torch.from_numpy(data["images"]).unsqueeze(1).float() / 255
labels = torch.from_numpy(data["labels"]).long()
dataset = TensorDataset(images, labels)
sampler = RandomSampler(dataset, generator=torch.Generator())
batches = DataLoader(dataset, BATCH, sampler=sampler, drop_last=True)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2), nn.GELU(),
    nn.Conv2d(16, 32, 3, stride=2), nn.GELU(),
    nn.Flatten(), nn.Linear(32 * 6 * 6, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(EPOCHS):
    sampler.generator.manual_seed(17 + epoch)
    total = torch.zeros((), device=device)
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    mean = total / len(batches)
    print(f"epoch {epoch + 1}: loss {mean:.6f}")

torch.save(model.state_dict(), "model.pt")
checksum = zlib.crc32(b"".join(w.cpu().numpy().tobytes() for w in model.state_dict().values()))
print(f"loss {mean:.6f}  weights {checksum:08x}")
