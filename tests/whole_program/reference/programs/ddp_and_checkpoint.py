"""Trains a small network with DistributedDataParallel, saves it halfway with torch.distributed.checkpoint, and continues to
train. Then loads the checkpoint into a new network and trains that network, too. Writes the losses of both networks and the sum
of all weights."""

import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from results import end, leave
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, SAVED_AFTER = 8, 4


def network(seed: int):
    torch.manual_seed(seed)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def batches():
    data = TensorDataset(torch.randn(64, 6, generator=torch.Generator().manual_seed(1)), torch.arange(64) % 3)
    return list(DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=2)))[:STEPS]


def train(model, optimizer, some) -> list[float]:
    losses = []
    for inputs, labels in some:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state_of(model, optimizer) -> dict:
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer}


def main() -> None:
    dist.init_process_group("gloo")
    folder = pathlib.Path(sys.argv[1]) / "checkpoint"
    first, second = batches()[:SAVED_AFTER], batches()[SAVED_AFTER:]
    model, optimizer = network(5)
    before = train(model, optimizer, first)
    dcp.save(state_of(model, optimizer), checkpoint_id=str(folder))
    after = train(model, optimizer, second)

    other, other_optimizer = network(99)
    loaded = state_of(other, other_optimizer)
    dcp.load(loaded, checkpoint_id=str(folder))
    set_state_dict(other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    again = train(other, other_optimizer, second)
    leave({"before": before, "after": after, "after loading": again, "weights": sum(p.double().sum().item() for p in model.parameters()),
           "files": sorted(p.name for p in folder.iterdir())})
    dist.destroy_process_group()
    end()


if __name__ == "__main__":
    main()
