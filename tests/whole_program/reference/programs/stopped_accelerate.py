"""A loop with accelerate and the tracker of ddprun on two ranks. It trains until the job is stopped. test_python_helper.py
starts this program. Argument 1 is the output folder."""

import os
import sys

import torch
from accelerate import Accelerator

import ddprun
from ddprun import integrations

accelerator = Accelerator(cpu=True, log_with=integrations.accelerate())
accelerator.init_trackers("run", config={"lr": 0.01})
model, n = accelerator.prepare(torch.nn.Linear(4, 1)), 0
while not ddprun.should_save():
    n += 1
    loss = model(torch.randn(2, 4)).square().mean()
    accelerator.backward(loss)
    accelerator.log({"train/loss": loss, "note": "text", "epoch": 0.5}, step=n)
    if n == 10:
        print("at work", flush=True)
os.makedirs(sys.argv[1], exist_ok=True)
if accelerator.is_main_process:
    path = os.path.join(sys.argv[1], "model.pt")
    torch.save(model.state_dict(), path)
    ddprun.saved(path)
accelerator.end_training()
print("ended", ddprun.rank, n, flush=True)
