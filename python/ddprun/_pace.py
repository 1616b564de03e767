"""Measures the duration of each step on this rank, and the part of it spent waiting for other ranks, for `ddprun.watch(model)`.

Step times alone are equal on all ranks, since the ranks wait for each other in each step. So we measure the waits:

- A backward pass ends with callbacks, in the order in which they were queued. We queue the first one at the first gradient: when it
  runs, this rank has computed. Next comes that of DistributedDataParallel, which waits for the others. Then comes another of ours.
- DistributedDataParallel sends rank 0's buffers before a forward pass, in a method of its class.
- Work.wait() waits for other collectives.

So the module within DistributedDataParallel has no hook, and it is pickled and scripted as without watch().

On a CPU we read the host's clock. A GPU runs behind the host, so there we record events in its stream. This module never waits for a GPU, changes no
number, and adds no collective."""

import collections
import contextlib
import dataclasses
import functools
import sys
import threading
import time

import torch
from torch.autograd import Variable

_SHORTEST_S = 0.02  # shorter steps are combined
_PIECE_S = 0.1  # into pieces of this length
_TELL_EVERY_S = 0.2  # if there are at least _STEPS_TOGETHER steps
_STEPS_TOGETHER = 5
_TELL_AT_LATEST_S = 1.0  # otherwise
_MOST = 100  # entries in one message
_MOST_WAITS = 1000  # waits on a GPU; beyond this number, completed ones are summed

_queue_callback = Variable._execution_engine.queue_callback


def _with_gradient(output, depth=4):
    """The tensors of a model's output from which a backward pass may start."""
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
        return
    if depth == 0:
        return
    if isinstance(output, dict):
        inner = output.values()
    elif isinstance(output, (list, tuple)):
        inner = output
    elif dataclasses.is_dataclass(output):
        inner = vars(output).values()
    else:
        return
    for one in inner:
        yield from _with_gradient(one, depth - 1)


def _uncompiled(hook):
    """Excludes a hook from torch.compile(), which would treat the hook's numbers as constants."""
    return torch.compiler.disable(hook) if "torch._dynamo" in sys.modules else hook


class _Hook:
    """A hook of the watched model. Copies and pickles have a standard function of Python instead that does nothing, so that they can be loaded
    without ddprun."""

    def __init__(self, call):
        self._call = _uncompiled(call)

    def __call__(self, *of_the_model):
        self._call(*of_the_model)

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


class Pace:
    def __init__(self, on_gpu):
        self._on_gpu = on_gpu
        self._thread = threading.get_ident()  # the training thread
        self._told = None  # the newest step
        self._began = None  # start of the step after it
        self._open = None  # start of the current wait for other ranks
        self._waited = 0.0  # waits of this step
        self._waits = collections.deque()  # the same on a GPU, as pairs of events that may be pending
        self._loading = None  # start of the wait for a batch, on the host's clock
        self._data = 0.0
        self._in_backward = False
        self._pending = []  # steps that a GPU has not finished
        self._times = []  # steps that were not reported
        self._told_at = time.monotonic()
        self._time_waits_in("torch.distributed.distributed_c10d", "Work", "wait")  # a collective does not identify its caller
        self._time_waits_in("torch.nn.parallel.distributed", "DistributedDataParallel", "_sync_module_buffers")

    # ---- hooks of the model ----

    def watch(self, model):
        model.register_forward_pre_hook(_Hook(self._forward_begins))
        model.register_forward_hook(_Hook(self._forward_ended))

    def _forward_begins(self, *_):
        if self._loading is not None:
            self._data += time.perf_counter() - self._loading
            self._loading = None
        self._in_backward = False  # it is still set if the last backward pass failed

    def _forward_ended(self, _model, _inputs, output):
        if torch.is_grad_enabled():
            for tensor in _with_gradient(output):
                tensor.register_hook(self._backward_begins)

    def _backward_begins(self, _gradient):
        if not self._in_backward:
            self._in_backward = True
            _queue_callback(self._computed)

    def _computed(self):
        self._in_backward = False
        self._begin_wait()
        _queue_callback(self._exchanged)

    def _exchanged(self):
        self._end_wait()
        self._loading = time.perf_counter()  # counts if a forward pass follows in the same step

    def _time_waits_in(self, module, name, method):
        """Measures a method that waits for other ranks, for the whole process."""
        owner = getattr(sys.modules.get(module), name, None)
        untimed = getattr(owner, method, None)
        if untimed is None:  # another PyTorch, or one without torch.distributed
            return

        @functools.wraps(untimed)
        def timed(self_, *args, **options):
            mine = self._open is None and threading.get_ident() == self._thread
            if mine:
                self._begin_wait()
            try:
                return untimed(self_, *args, **options)
            finally:
                if mine:
                    self._end_wait()

        setattr(owner, method, _uncompiled(timed))

    # ---- times ----

    def _now(self):
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _begin_wait(self):
        if self._open is None:
            self._open = self._now()

    def _end_wait(self):
        since, self._open = self._open, None
        if since is None or self._began is None:  # nothing is measured before the first step
            return
        if not self._on_gpu:
            self._waited += self._now() - since
            return
        self._waits.append((since, self._now()))
        while len(self._waits) > _MOST_WAITS and self._waits[0][1].query():  # in an evaluation between two steps, or after the last step()
            since, there = self._waits.popleft()
            self._waited += since.elapsed_time(there) / 1000

    # ---- reports ----

    def step(self, n):
        """Call when step n is finished. Returns the times to report now, as lists: step, number of steps, and microseconds of computation, of waiting
        and of loading data. Later work belongs to the next step, even if step n is reported again with more figures."""
        if n == self._told:
            return None
        self._told = n
        now = self._now()
        began, self._began = self._began, now
        waited, self._waited = self._waited, 0.0
        waits, self._waits = self._waits, collections.deque()
        data, self._data = self._data, 0.0
        self._open = self._loading = None
        if began is not None:  # the first step is not typical
            self._pending.append((n, began, now, waited, waits, data))
            self._finish()
        return self._due()

    def loads(self):
        """Marks the start of data loading for the next step."""
        self._loading = time.perf_counter()

    def _finish(self):
        while self._pending:
            n, began, ended, waited, waits, data = self._pending[0]
            if self._on_gpu:
                if not (ended.query() and all(there.query() for _, there in waits)):
                    return
                took = began.elapsed_time(ended) / 1000
                waited += sum(since.elapsed_time(there) for since, there in waits) / 1000
            else:
                took = ended - began
            del self._pending[0]
            self._add(n, max(0.0, took - waited), max(0.0, waited), data)

    def _add(self, n, own, waited, data):
        times = [1, own, waited, data]
        if self._times and not self._is_whole():
            times = [mine + more for mine, more in zip(times, self._times.pop()[1:])]
        self._times.append([n, *times])

    def _is_whole(self):
        _, steps, own, waited, _ = self._times[-1]
        return own + waited >= (_SHORTEST_S if steps == 1 else _PIECE_S)

    def _due(self):
        if not self._times or not self._is_whole():
            return None
        now = time.monotonic()
        are_steps = self._times[-1][1] == 1 and len(self._times) >= _STEPS_TOGETHER
        if now - self._told_at < (_TELL_EVERY_S if are_steps else _TELL_AT_LATEST_S) and len(self._times) < _MOST:
            return None
        self._told_at = now
        times, self._times = self._times[-_MOST:], []
        return [[n, steps, *(int(seconds * 1e6) for seconds in (own, waited, data))] for n, steps, own, waited, data in times]
