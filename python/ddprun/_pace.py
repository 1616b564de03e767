"""Measures the duration of each step on this rank, and the part of it spent waiting for other ranks, for `ddprun.watch(model)`.

The problem. One slow rank delays all ranks, because each step ends with an exchange of gradients. All ranks then have equal
step times, so step times do not show which rank is slow. The waits show it: the slow rank waits for no other rank. So we
measure how long this rank waits in each step, and the agent compares the ranks. There are three places where a rank waits:

- At the end of a backward pass. Autograd runs callbacks there, in the order in which they were queued. We queue `_computed` at
  the first gradient, before DistributedDataParallel queues its callback, which waits for the other ranks. `_computed` runs when
  this rank has computed all gradients. It queues `_exchanged` as the last callback. The time between our two callbacks is the
  wait.
- Before a forward pass. DistributedDataParallel sends rank 0's buffers there, in one of its methods. We wrap that method.
- In Work.wait(), in which a script or a library waits for other collectives. We wrap this method, too.

All hooks are on the model that was passed to watch(). The module within DistributedDataParallel has no hooks, so watch() does
not affect how that module is pickled or scripted.

The cost. On a CPU we read the host's clock. A GPU runs behind the host, so there we record events in its stream and read them
later. This module never waits for a GPU, changes no result of the training, and adds no collective."""

import collections
import contextlib
import dataclasses
import functools
import sys
import threading
import time

import torch
from torch.autograd import Variable

_MIN_STEP_S = 0.02  # steps that are shorter (in seconds) are combined into entries of at least _PIECE_S
_PIECE_S = 0.1  # minimum duration in seconds of an entry that combines several steps
_REPORT_INTERVAL_S = 0.2  # minimum time between two messages with at least _STEPS_PER_REPORT entries of one step each
_STEPS_PER_REPORT = 5
# minimum time between two messages with fewer entries, or with entries that combine several steps
_MAX_REPORT_INTERVAL_S = 1.0
_MAX_ENTRIES = 100  # maximum number of entries in a message
# Maximum number of waits in one step on a GPU that are kept as pairs of events. If there are more, the durations of completed
# waits are added up.
_MAX_WAITS = 1000

_queue_callback = Variable._execution_engine.queue_callback


def _gradient_tensors(output, depth=4):
    """Yields the tensors in a model's output from which a backward pass can start."""
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
        yield from _gradient_tensors(one, depth - 1)


def _uncompiled(hook):
    """Returns the hook, excluded from torch.compile(). Otherwise the compiler would replace the hook's clock readings by
    constants."""
    return torch.compiler.disable(hook) if "torch._dynamo" in sys.modules else hook


class _Hook:
    """A hook of the watched model. Copies and pickles of the model contain, in place of the hook, a function of the standard
    library that does nothing. So they can be loaded without ddprun."""

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
        self._newest_step = None  # number of the newest finished step
        self._started = None  # time at which the newest step finished and the next one started
        self._open = None  # start of the wait for other ranks that is in progress, or None
        self._waited = 0.0  # seconds that this rank has waited for other ranks in this step
        # the waits for other ranks on a GPU, as pairs of CUDA events that may not have completed
        self._waits = collections.deque()
        self._loading = None  # when the host started to wait for the next batch
        self._data = 0.0  # seconds that the host has waited for data in this step
        self._in_backward = False
        self._pending = []  # finished steps whose CUDA events have not completed
        self._times = []  # entries not yet reported
        self._reported_at = time.monotonic()
        self._time_waits_in("torch.distributed.distributed_c10d", "Work", "wait")  # includes collectives of the script
        self._time_waits_in("torch.nn.parallel.distributed", "DistributedDataParallel", "_sync_module_buffers")

    # ---- hooks of the model ----

    def watch(self, model):
        model.register_forward_pre_hook(_Hook(self._forward_begins))
        model.register_forward_hook(_Hook(self._forward_ended))

    def _forward_begins(self, *_):
        if self._loading is not None:
            self._data += time.perf_counter() - self._loading
            self._loading = None
        self._in_backward = False  # still set if the last backward pass failed

    def _forward_ended(self, _model, _inputs, output):
        if torch.is_grad_enabled():
            for tensor in _gradient_tensors(output):
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
        self._loading = time.perf_counter()  # the time from here to a forward pass counts as data loading

    def _time_waits_in(self, module, name, method):
        """Replaces a method that waits for other ranks by one that also measures the wait. The replacement applies to all
        callers in this process."""
        owner = getattr(sys.modules.get(module), name, None)
        untimed = getattr(owner, method, None)
        if untimed is None:  # this PyTorch has no such method, or no torch.distributed
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
        if since is None or self._started is None:  # waits before the first step are not counted
            return
        if not self._on_gpu:
            self._waited += self._now() - since
            return
        self._waits.append((since, self._now()))
        # A step has more than _MAX_WAITS waits if, for example, the script runs a long evaluation.
        while len(self._waits) > _MAX_WAITS and self._waits[0][1].query():
            since, there = self._waits.popleft()
            self._waited += since.elapsed_time(there) / 1000

    # ---- reports ----

    def step(self, n):
        """Call this when step n is finished. Returns the entries to report now, or None. An entry is a list of five numbers:
        the last step of the entry, the number of steps, and the microseconds spent computing, waiting for ranks and loading
        data. A script may call ddprun.step() again for the same step, to add metrics. The second call changes nothing here,
        because work after the first call belongs to the next step."""
        if n == self._newest_step:
            return None
        self._newest_step = n
        now = self._now()
        started, self._started = self._started, now
        waited, self._waited = self._waited, 0.0
        waits, self._waits = self._waits, collections.deque()
        data, self._data = self._data, 0.0
        self._open = self._loading = None
        if started is not None:  # the first step includes warm-up, so its time is not reported
            self._pending.append((n, started, now, waited, waits, data))
            self._finish()
        return self._due()

    def loads(self):
        """Marks the time at which the script starts to load the data of the next step."""
        self._loading = time.perf_counter()

    def _finish(self):
        while self._pending:
            n, started, ended, waited, waits, data = self._pending[0]
            if self._on_gpu:
                if not (ended.query() and all(there.query() for _, there in waits)):
                    return
                took = started.elapsed_time(ended) / 1000
                waited += sum(since.elapsed_time(there) for since, there in waits) / 1000
            else:
                took = ended - started
            del self._pending[0]
            self._add(n, max(0.0, took - waited), max(0.0, waited), data)

    def _add(self, n, own, waited, data):
        times = [1, own, waited, data]
        if self._times and not self._is_whole():
            times = [mine + more for mine, more in zip(times, self._times.pop()[1:])]
        self._times.append([n, *times])

    def _is_whole(self):
        _, steps, own, waited, _ = self._times[-1]
        return own + waited >= (_MIN_STEP_S if steps == 1 else _PIECE_S)

    def _due(self):
        if not self._times or not self._is_whole():
            return None
        now = time.monotonic()
        are_steps = self._times[-1][1] == 1 and len(self._times) >= _STEPS_PER_REPORT
        if now - self._reported_at < (_REPORT_INTERVAL_S if are_steps else _MAX_REPORT_INTERVAL_S) and len(self._times) < _MAX_ENTRIES:
            return None
        self._reported_at = now
        times, self._times = self._times[-_MAX_ENTRIES:], []
        return [[n, steps, *(int(seconds * 1e6) for seconds in (own, waited, data))] for n, steps, own, waited, data in times]
