"""`import ddprun`: connects a Python training script to ddprun.

The script reports its progress, its checkpoints and its errors to the agent, the ddprun process that started it. The
script receives the reason for a restart, and the request to save and stop:

    import ddprun
    ...
    ddprun.step(n, loss=loss, total=steps)
    if ddprun.should_save():
        save(...)
        ddprun.stopped()

Outside a job of ddprun, in child processes of the worker, and after the agent has ended, all calls do nothing. They raise no
error there, so the same script also runs without ddprun. Two kinds of calls can block. After a stop request, should_save()
waits until the agent has chosen the step at which all ranks save. A call that sends a message waits up to 10 s if the agent
does not read its socket. After 10 s the call closes the connection to the agent.

This module needs only Python 3.8 and the standard library. docs/python-scripts.md is the user's page, and
docs/worker-channel.md describes the protocol."""

import atexit
import contextlib
import operator
import os
import sys

from ddprun import _worker_channel

__all__ = ["REQUEUE", "cause", "error", "in_job", "local_rank", "rank", "restart", "restore", "saved", "should_save", "snapshot", "step",
           "stop_at_step", "stopped", "watch", "world_size"]

PROTOCOL = _worker_channel.PROTOCOL
REQUEUE = 85  # A worker that has saved its state exits with this code. The scheduler should then run the job again.

_KINDS = {"oom": "out_of_memory", "out_of_memory": "out_of_memory", "data": "usage", "usage": "usage", "config": "usage",
          "diverged": "diverged", "checkpoint": "checkpoint", "lost_peer": "lost_peer", "exception": "exception"}


def _number(name, default):
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return default


rank = _number("RANK", 0)
local_rank = _number("LOCAL_RANK", 0)
world_size = _number("WORLD_SIZE", 1)
restart = _number("TORCHELASTIC_RESTART_COUNT", 0)  # how many times the job has been restarted
cause = os.environ.get("DDPRUN_RESTART_CAUSE") or None  # why the job was restarted, as in `ddprun report`; None if it was not


_channel = _worker_channel.from_agent(rank, world_size)
_memory = os.environ.pop("DDPRUN_SNAPSHOTS", "") if _channel is not None else ""  # where snapshots are kept, as PATH:SLOT
_node = _number("GROUP_RANK", 0)
# The agent sets the next three values in multi-node jobs. `_round` counts the starts of all workers, from 0. `_address` is the
# address at which other nodes reach this node. `_ports` is --port-range as LOW-HIGH (or ""). On a single node `_round` stays 0,
# but then each new start of the workers increments `restart`. Therefore `restart` + `_round` is different after each start.
_round = _number("DDPRUN_GENERATION", 0)
_address, _ports = os.environ.get("DDPRUN_NODE_ADDRESS", ""), os.environ.get("DDPRUN_PORT_RANGE", "")
_snapshots = None
_pace_watch = None  # the _pace.Pace that measures step times; None until the script calls watch()


def _in_forked_child():
    global _channel, _memory, _snapshots, _pace_watch
    _memory, _snapshots, _pace_watch = "", None, None
    if _channel is not None:
        _channel.close_in_child()
        _channel = None


def _at_exit():
    if _channel is not None:
        _channel.flush()


def _before_fork():
    if _channel is not None:
        _channel.signals.before_fork()


def _after_fork():
    if _channel is not None:
        _channel.signals.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
atexit.register(_at_exit)


def _step_number(n):
    n = operator.index(n)
    if not 0 <= n <= _worker_channel.MAX_STEPS:
        raise ValueError("ddprun: expected a step number from 0 to 2**63 - 1, found %d" % n)
    return n


def in_job():
    """Returns True if this process is a worker of ddprun."""
    return _channel is not None


def step(n, loss=None, samples=0, total=None, epoch=None, epochs=None, **figures):
    """Reports that step n is finished. Call this in every step. It is cheap, since it sends at most a few messages per second
    to the agent.

    The loss and other metrics (lr, accuracy, ...) are numbers, one-element tensors, or functions without arguments that return
    one of these. Their values are read only on rank 0, and only when a message is sent. A loss on a GPU therefore does not
    block every step. A tensor is copied in this call, so the script may overwrite it afterwards. `samples` is the number of
    samples that this rank has processed since the last call. `total` and `epochs` are the length of the whole run; ddprun
    estimates the remaining time from them. `epoch` is counted from 0.

    An omitted argument keeps its earlier value. If a metric or count is not a number, it is ignored, and a warning is printed
    once. Only an invalid n raises an error.
    """
    n = _step_number(n)
    if _channel is not None:
        times = _pace_watch.step(n) if _pace_watch is not None else None
        _channel.step(n, loss, samples, total, epoch, epochs, figures)
        if times:
            _channel.pace(times)
        if _pace_watch is not None:
            _pace_watch.loads()


def watch(model):
    """Measures on this rank how long each step takes, and how much of that time the rank waits for other ranks. The agent
    compares the times of all ranks, and finds the rank that delays the other ranks, and the cause. Returns the model.

    `model` is the model that the script calls in each step: DistributedDataParallel or another wrapper that exchanges
    gradients. Call watch() once on every rank, before the first step. A script with several models calls it once for each
    model. step() sends the measured times, so a script that does not call step() reports no times. Copies and pickles of the
    model are not watched.
    """
    global _pace_watch
    if _channel is not None and world_size > 1:
        kinds = {parameter.device.type for parameter in model.parameters()}
        if kinds <= {"cpu"} or kinds <= {"cuda"}:
            from ddprun import _pace
            _pace_watch = _pace_watch or _pace.Pace(kinds == {"cuda"})
            _pace_watch.watch(model)
        else:
            _print_line("watch() ignores a model on %s: expected all parameters on the CPU, or all on CUDA devices" % ", ".join(sorted(kinds)))
    return model


def saved(path_or_step=None, step=None, seconds=0.0):
    """Reports to the agent that a checkpoint is complete. The checkpoint is identified by its path or its step. The default
    step is the newest one that was passed to step(). `seconds` is how long the save took."""
    path = ""
    if isinstance(path_or_step, (str, bytes, os.PathLike)):
        path = os.path.abspath(os.fsdecode(path_or_step))
    elif path_or_step is not None:
        step = path_or_step
    step = None if step is None else _step_number(step)
    if _channel is not None:
        _channel.saved(path, step, seconds)


def error(kind, message=""):
    """Reports why this worker is about to fail. The script should raise an error or exit afterwards.

    `kind` is "oom", "data", "config", "diverged" or "checkpoint" for a failure that would occur again after a restart. It is
    "lost_peer" if another rank failed first. Any other text only describes the failure.
    """
    known = _KINDS.get(str(kind))
    text = _worker_channel.bounded_text(message if known else "%s: %s" % (kind, message) if message else kind)
    if _channel is not None:
        _channel.error(known or "exception", text)


def should_save():
    """Returns True if the script must save and stop now. Call this on every rank, after each step or after every k-th step.
    After a stop request, the function returns True at the same call on all ranks. Without a stop request, it returns False
    immediately."""
    return _channel is not None and _channel.should_save()


def stopped():
    """Ends this process with the exit code 85, which means that the job has saved and should run again. Call this after
    should_save() has returned True. Without a stop request, ddprun counts the exit as a failure."""
    sys.exit(REQUEUE)


@contextlib.contextmanager
def stop_at_step(save=None):
    """Makes the script stop at the same step on all ranks. Put `with ddprun.stop_at_step(save):` around the code of one step,
    on every rank. After a stop request, all ranks finish the same step. Then save() is called, and the process ends as with
    stopped(). Without a stop request, no rank waits for another."""
    if _channel is not None:
        _channel.announce_should_save()
    yield
    if should_save():
        if save is not None:
            save()
        stopped()


def _print_line(text, with_rank=True):
    print("ddprun: %s%s" % ("rank %d: " % rank if with_rank else "", text), file=sys.stderr, flush=True)


def _open_snapshots():
    global _memory, _snapshots
    if _snapshots is None and _memory:
        from ddprun import _snapshot
        where, _memory = _memory, ""
        try:
            _snapshots = _snapshot.Snapshots(where, rank, world_size, restart + _round, _print_line)
        except (OSError, ValueError) as reason:
            _print_line("the agent's memory for snapshots cannot be opened: %s; the job continues without snapshots" % reason)
    return _snapshots


def snapshot(state, step=None, replicated=False):
    """Copies `state` into memory that outlives this process. After a restart, restore() returns the copy. Returns True if the
    copy is kept.

    `state` is a dict of state_dicts, numbers and other objects that can be pickled. The bytes of tensors and arrays are copied
    directly. The copy also contains the random state of Python, numpy and torch. Call snapshot() on every rank after the same
    steps. The two newest copies are kept. The default step is the newest one that was passed to step(). Set `replicated` to
    True if the state is the same on all ranks, as with DDP. A rank without a copy may then load the copy of another rank.
    """
    if step is not None:
        step = _step_number(step)
    snapshots = _open_snapshots()
    if snapshots is None:
        return False
    if step is None and _channel is not None and _channel.newest_step() >= 0:
        step = _channel.newest_step()
    return snapshots.take(state, step, bool(replicated))


def restore(like=None):
    """Returns the state of the newest snapshot() that all ranks have, with tensors on the CPU. Returns None if no snapshot
    exists on all ranks, for example at the first start of the job. Call restore() on every rank. Call it after the script has
    seeded torch, because it also restores the random state.

    `like` is the state that the script would now pass to snapshot(). If the tensors in a snapshot have other shapes, the
    snapshot is not restored, and a line on stderr reports this.
    """
    global _agreements
    if _channel is None or (restart == 0 and _round == 0):
        return None
    from ddprun import _lending, _snapshot_choice
    snapshots = _open_snapshots()
    _agreements += 1
    exchange = _lending.RestoreExchange(_channel.request_store, "ddprun/restore/%d/%d/" % (restart, _agreements), rank, world_size)

    def agree(offer):
        decision = _lending.agree(exchange, {**offer, "at": _node}, _snapshot_choice.decide, snapshots, (_address, _ports), _print_line)
        if rank == 0 and decision.get("step") is None and decision.get("why"):
            _print_line(decision["why"], with_rank=False)
        return decision

    if snapshots is None:  # The other ranks wait for this rank's list of snapshots, so an empty list is sent.
        agree(_snapshot_choice.NOTHING)
        return None
    return snapshots.restore(like, agree)


_agreements = 0
