"""Runs every collective of torch.distributed that works on CPU tensors. The address of the rendezvous comes from the
environment variables. If the second argument is "by-address", it is passed to init_process_group("gloo"). The recorded result
of an operation is its value, or the name of the exception if Gloo does not support it."""

import datetime
import os
import sys

import torch
import torch.distributed as dist
from results import end, leave

TIMEOUT = datetime.timedelta(seconds=60)
OPERATIONS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")


def mine(count: int = 4) -> torch.Tensor:
    return torch.arange(1, count + 1) + 10 * dist.get_rank()


def all_collectives() -> dict:
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    results = {}

    def record(name, operation) -> None:
        try:
            value = operation()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            value = type(error).__name__
        results[name] = [v.tolist() if isinstance(v, torch.Tensor) else v for v in value] if isinstance(value, list) else (
            value.tolist() if isinstance(value, torch.Tensor) else value)

    def into(tensor, call):
        call(tensor)
        return tensor

    def lists(call, count=4):
        got = [torch.zeros(count, dtype=torch.long) for _ in range(size)]
        call(got)
        return got

    def passed_round():
        got = torch.zeros(4, dtype=torch.long)
        if rank % 2 == 0:
            dist.send(mine(), after)
            dist.recv(got, before)
        else:
            dist.recv(got, before)
            dist.send(mine(), after)
        return got

    def exchanged():
        got = torch.zeros(4, dtype=torch.long)
        for work in [dist.isend(mine(), after, tag=3), dist.irecv(got, before, tag=3)]:
            work.wait()
        return got

    def passed_as_batch():
        got = torch.zeros(4, dtype=torch.long)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(), after), dist.P2POp(dist.irecv, got, before)]):
            work.wait()
        return got

    def objects(call, count=size):
        got = [None] * count
        call(got)
        return got

    def sent_object():
        got = [None]
        if rank == 0:
            for peer in range(1, size):
                dist.send_object_list([{"to": peer}], peer)
        else:
            dist.recv_object_list(got, 0)
        return got

    def in_a_group():
        group = dist.new_group([0])
        return into(mine(), lambda t: dist.all_reduce(t, group=group)) if rank == 0 else dist.get_rank(group)

    record("broadcast", lambda: into(mine(), lambda t: dist.broadcast(t, 1)))
    for name in OPERATIONS:
        record(f"all_reduce {name}", lambda: into(mine(), lambda t: dist.all_reduce(t, getattr(dist.ReduceOp, name))))
    record("all_reduce of floats", lambda: into(mine().float() / 7, dist.all_reduce))
    record("all_reduce, asynchronous", lambda: into(mine(), lambda t: dist.all_reduce(t, async_op=True).wait()))
    record("all_reduce_coalesced", lambda: (lambda ts: (dist.all_reduce_coalesced(ts), ts)[1])([mine(2), mine(3)]))
    record("reduce", lambda: (lambda t: t if rank == 1 else None)(into(mine(), lambda t: dist.reduce(t, 1))))
    record("all_gather", lambda: lists(lambda got: dist.all_gather(got, mine())))
    record("all_gather_into_tensor", lambda: into(torch.zeros(4 * size, dtype=torch.long), lambda t: dist.all_gather_into_tensor(t, mine())))
    record("gather", lambda: lists(lambda got: dist.gather(mine(), got if rank == 0 else None, 0)))
    record("scatter", lambda: into(torch.zeros(4, dtype=torch.long),
                                   lambda t: dist.scatter(t, [mine() + i for i in range(size)] if rank == 0 else None, 0)))
    record("reduce_scatter", lambda: into(torch.zeros(4, dtype=torch.long),
                                          lambda t: dist.reduce_scatter(t, [mine() * (i + 1) for i in range(size)])))
    record("reduce_scatter_tensor", lambda: into(torch.zeros(4, dtype=torch.long), lambda t: dist.reduce_scatter_tensor(t, mine(4 * size))))
    record("all_to_all", lambda: lists(lambda got: dist.all_to_all(got, [mine() + i for i in range(size)])))
    record("all_to_all_single", lambda: into(torch.zeros(2 * size, dtype=torch.long), lambda t: dist.all_to_all_single(t, mine(2 * size))))
    record("send and recv", passed_round)
    record("isend and irecv", exchanged)
    record("batch_isend_irecv", passed_as_batch)
    record("barrier", dist.barrier)
    record("monitored_barrier", lambda: dist.monitored_barrier(timeout=TIMEOUT, wait_all_ranks=True))
    record("all_gather_object", lambda: objects(lambda got: dist.all_gather_object(got, {"rank": rank})))
    record("broadcast_object_list", lambda: (lambda got: (dist.broadcast_object_list(got, 1), got)[1])([f"of {rank}", rank]))
    record("gather_object", lambda: objects(lambda got: dist.gather_object((rank, "x"), got if rank == 0 else None)))
    record("scatter_object_list", lambda: objects(lambda got: dist.scatter_object_list(got, list("abcd")[:size] if rank == 0 else None), 1))
    record("send_object_list", sent_object)
    record("new_group", in_a_group)
    return results


if __name__ == "__main__":
    if sys.argv[2:] == ["by-address"]:
        dist.init_process_group("gloo", init_method=f"tcp://localhost:{os.environ['MASTER_PORT']}", rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]), timeout=TIMEOUT)
    else:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    found = all_collectives()
    dist.barrier()
    dist.destroy_process_group()
    leave({"collectives": found, "elastic": dist.is_torchelastic_launched()})
    end()
