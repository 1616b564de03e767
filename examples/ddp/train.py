"""Trains a small classifier on generated points with DistributedDataParallel. No line is specific to ddprun, so it runs under torchrun too."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 5

dist.init_process_group("gloo")  # on GPUs: "nccl"
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # all ranks generate the same data
points = torch.rand(2048, 2) * 2 - 1
classes = (points.square().sum(1) < 0.6).long()  # the class of a point: inside or outside of a circle
data = TensorDataset(points, classes)
sampler = DistributedSampler(data, seed=0)  # each rank gets its own share
loader = DataLoader(data, batch_size=32, sampler=sampler)

net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
model = DistributedDataParallel(net)  # sums the gradients of all ranks
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for epoch in range(1, EPOCHS + 1):
    sampler.set_epoch(epoch)  # another order in each epoch
    right = torch.zeros(())
    for inputs, labels in loader:
        outputs = model(inputs)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
        right += (outputs.argmax(1) == labels).sum()
    dist.all_reduce(right)
    if rank == 0:
        print(f"epoch {epoch}/{EPOCHS}: {right.item() / len(data):.1%} right with {world} workers", flush=True)

dist.destroy_process_group()
