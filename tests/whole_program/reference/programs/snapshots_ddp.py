"""Trains a small GPT with DDP, takes a snapshot after every step, and resumes from it.

usage: snapshots_ddp.py STEPS KILLS SEED OUT [WITHIN]

After each of the first KILLS starts of the job, one rank is killed with SIGKILL at a random time, at most WITHIN seconds
(default 0.2) after its first step. The kill can happen at any instruction. Every rank appends a line for each step to OUT.RANK.
A rank prints a line when it finishes its first step after a start, and when its kill is scheduled."""

import ctypes
import random
import sys
import time

import ddprun
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LETTERS, LENGTH, WIDTH = 65, 32, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        heads = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=0.1).transpose(1, 2).flatten(2)
        x = x + self.proj(seen)
        return x + self.mlp(self.after(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(LETTERS, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.body = nn.Sequential(Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS))

    def forward(self, x):
        return self.body(self.token(x) + self.place)


def die_after(seconds: float) -> None:
    """Kills this process after some seconds. A kernel timer sends the signal, so no Python code runs between the expiry of the
    timer and the kill."""
    libc = ctypes.CDLL(None, use_errno=True)
    event, timer = (ctypes.c_int * 16)(), ctypes.c_void_p()
    event[2] = 9  # sets the field sigev_signo to SIGKILL; the field sigev_notify stays SIGEV_SIGNAL
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    print(f"dies at {time.monotonic() + seconds:.4f}", flush=True)
    assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9)), None) == 0


def main() -> None:
    steps, kills, seed = (int(word) for word in sys.argv[1:4])
    within = float(sys.argv[5]) if len(sys.argv) > 5 else 0.2
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(5 + ddprun.rank)  # gives each rank different data and dropout
    model = DistributedDataParallel(Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    chance = random.Random(1000 * seed + ddprun.restart)
    victim, delay = chance.randrange(2), chance.random() * within

    def state(n):
        return {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": n}

    done = 0
    if kept := ddprun.restore(like=state(0)):
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["step"]
    print("starts after", done, flush=True)
    with open(f"{sys.argv[4]}.{ddprun.rank}", "a") as out:
        n = done
        while n < steps or ddprun.restart < kills:
            n += 1
            x = (torch.randint(LETTERS, (8, 1)) + torch.arange(LENGTH + 1) ** 2 // 3) % LETTERS
            loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.write(f"{n} {loss.item().hex()}\n")
            out.flush()
            assert ddprun.snapshot(state(n), step=n, replicated=True)
            if n == done + 1:
                print(f"first step at {time.monotonic():.4f}", flush=True)
                if ddprun.restart < kills and ddprun.rank == victim:
                    die_after(delay)
    torch.distributed.destroy_process_group()


main()
