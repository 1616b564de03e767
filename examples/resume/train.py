"""Saves its state and ends when the job is preempted. The next invocation continues from the saved state. `train.py preempt`
preempts itself at step 30."""

import os
import signal
import sys

import ddprun
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVED = 100, "saved.pt"

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
weights = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])  # the model learns these weights
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

done = 0
if os.path.exists(SAVED):
    state = torch.load(SAVED)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
    if rank == 0:
        print(f"continuing after step {done}", flush=True)


def save():
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": n}
        torch.save(state, SAVED + ".new")
        os.replace(SAVED + ".new", SAVED)  # the file is complete at every moment
        print(f"saved after step {n}", flush=True)


for n in range(done + 1, STEPS + 1):
    with ddprun.stop_at_step(save):  # after a SIGTERM to the job, all ranks stop after the same step
        torch.manual_seed(1000 * n + rank)  # gives the same data after a restart
        inputs = torch.randn(32, 4)
        loss = (model(inputs) - inputs @ weights).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ddprun.step(n, loss=loss, total=STEPS)
        if sys.argv[1:] == ["preempt"] and n == 30 and rank == 0:
            os.kill(os.getppid(), signal.SIGTERM)  # as a scheduler does before it takes the machine away

if rank == 0:
    print(f"finished with a loss of {loss.item():.4f}", flush=True)
dist.destroy_process_group()
