"""A small DDP script that keeps a snapshot after every step and goes on from it: usage snapshots_ddp.py STEPS KILLS SEED OUT. In each of the first
KILLS rounds one rank dies of SIGKILL at a random time after its first step, at whatever instruction it is. Every rank appends a line for each step to
OUT.RANK; `python snapshots_ddp.py` without torch's part is tests/whole_program/test_snapshots.py's own."""

import ctypes
import random
import sys

import ddprun
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def die_after(seconds: float) -> None:
    """By a timer of the kernel: no Python runs between its end and the death."""
    libc = ctypes.CDLL(None, use_errno=True)
    event, timer = (ctypes.c_int * 16)(), ctypes.c_void_p()
    event[2] = 9  # sigev_signo: SIGKILL; sigev_notify stays SIGEV_SIGNAL
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9)), None) == 0


def main() -> None:
    steps, kills, seed = (int(word) for word in sys.argv[1:4])
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(5 + ddprun.rank)  # dropout differs on each rank
    model = nn.Sequential(nn.Linear(64, 512), nn.Dropout(0.2), nn.ReLU(), nn.Linear(512, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    chance = random.Random(1000 * seed + ddprun.restart)
    victim, delay = chance.randrange(2), chance.random() * 0.2

    def state(n):
        return {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": n}

    done = 0
    if kept := ddprun.restore(like=state(0)):
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["step"]
    print("begins after", done, flush=True)
    with open(f"{sys.argv[4]}.{ddprun.rank}", "a") as out:
        n = done
        while n < steps or ddprun.restart < kills:
            n += 1
            x = torch.randn(16, 64)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.write(f"{n} {loss.item().hex()}\n")
            out.flush()
            assert ddprun.snapshot(state(n), step=n, replicated=True)
            if n == done + 1 and ddprun.restart < kills and ddprun.rank == victim:
                die_after(delay)
    torch.distributed.destroy_process_group()


main()
