"""A training program that survives restarts in the same way as in the torchrun tutorials of PyTorch: rank 0 writes a snapshot
after every epoch, and each worker reads it when it starts. `--fail EPOCH:RESTART,...` makes rank 1 fail in epoch EPOCH after
RESTART restarts. Each worker appends a line to a file whenever it starts."""

import argparse
import json
import os
import pathlib

import torch
import torch.distributed as dist
from results import end
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--fail", default="")
    args = parser.parse_args()
    rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    failures = [tuple(map(int, pair.split(":"))) for pair in args.fail.split(",") if pair]
    snapshot = args.folder / "snapshot.pt"

    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    parallel = DistributedDataParallel(model)
    with open(args.folder / f"attempts-{rank}.jsonl", "a", encoding="utf-8") as file:
        print(json.dumps({"restart": restart, "max": os.environ["TORCHELASTIC_MAX_RESTARTS"], "first": first}), file=file)
    losses = []
    for epoch in range(first, EPOCHS):
        inputs = torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * epoch + rank))
        optimizer.zero_grad()
        loss = (parallel(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        if rank == 1 and (epoch, restart) in failures:
            raise SystemExit(9)
        optimizer.step()
        losses.append(loss.item())
        dist.barrier()  # If a rank fails in this epoch, rank 0 blocks here and does not save the epoch.
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, snapshot.with_suffix(".new"))
            os.replace(snapshot.with_suffix(".new"), snapshot)
    (args.folder / f"rank-{rank}.json").write_text(json.dumps({"losses": losses, "weights": model.weight.tolist()}), encoding="utf-8")
    dist.destroy_process_group()
    end()


if __name__ == "__main__":
    main()
