"""`import ddprun`: connects a Python script to ddprun.

The script reports its progress, its checkpoints and its errors. ddprun reports the earlier failures of the job, and when to save and stop:

    import ddprun
    ...
    ddprun.step(n, loss=loss, total=steps)
    if ddprun.should_save():
        save(...)
        ddprun.stopped()

All calls do nothing outside a job of ddprun, in processes that the worker starts or forks, and when the agent is gone. No call raises because there
is no agent. should_save() waits for the agent while a job stops. If the agent does not read, each call that sends a message waits up to 10 s; then
the channel is closed. Needs only Python 3.8. docs/python-scripts.md is for users, docs/worker-channel.md describes the protocol."""

import atexit
import contextlib
import json
import math
import operator
import os
import platform
import select
import socket
import struct
import sys
import threading
import time

from ddprun import _signals

__all__ = ["REQUEUE", "cause", "error", "in_job", "local_rank", "rank", "restart", "restore", "saved", "should_save", "snapshot", "step",
           "stop_at_step", "stopped", "watch", "world_size"]

PROTOCOL = (1, 4)  # version of the worker channel: major, minor
REQUEUE = 85  # the exit code of a job that has saved and asks to be run again

_PROGRESS_EVERY_S = 0.2  # nothing reads progress more often
_PATIENCE_MS = 10_000  # limit of a write when the agent does not read
_MOST_FIGURES = 100
_MOST_TEXT = 16_384
_MOST_STEPS = 2 ** 63 - 1
_TAKEN = ("event", "time_ns", "type", "step")  # keys of a line of metrics.jsonl
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
restart = _number("TORCHELASTIC_RESTART_COUNT", 0)  # number of earlier restarts of the job
cause = os.environ.get("DDPRUN_RESTART_CAUSE") or None  # cause of the newest failure, as in `ddprun report`; None in the first round


def _plain(value):
    """A number as the channel encodes it: JSON has no NaN and no infinities."""
    value = float(value.detach() if hasattr(value, "detach") else value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _text(value):
    return str(value)[:_MOST_TEXT].encode("utf-8", "replace").decode()


class _Channel:
    """The worker's end of the channel. A thread of its own reads, because a request of the agent may arrive while the script waits in a
    collective."""

    def __init__(self, sock):
        self._socket = sock
        self._state = threading.Condition()  # guards the members below; reentrant, for signal handlers
        self._closed = False
        self._begun = False
        self._phase = ""
        self._last = -1  # the newest step
        self._samples = 0
        self._total = 0
        self._epoch = 0
        self._epochs = 0
        self._sent_at = -math.inf
        self._unsent = False
        self._figures = {}  # figures of steps that were not sent
        self._figures_step = -1  # the newest step with figures
        self._answers = {}  # replies of the store, by the number of the request
        self._questions = 0
        self._warned = set()
        self._calls = 0  # number of calls of should_save()
        self._stopping = False  # Stop{save} was answered
        self._stop_at = None
        self._stop_now = False
        self._asks = False  # the agent knows that the script calls should_save()
        self._writing = threading.RLock()
        self.signals = _signals.StopSignals(lambda number: self._send({"type": "signal", "signal": number}))

    # ---- the script's side ----

    def step(self, n, loss, samples, total, epoch, epochs, figures):
        samples = self._whole("samples", samples) or 0
        total, epoch, epochs = self._whole("total", total), self._whole("epoch", epoch), self._whole("epochs", epochs)
        told = self._as_they_are({"loss": loss, **figures}) if rank == 0 else {}  # only rank 0's are shown
        with self._state:
            if n < self._last:
                self._warn_once("went back", "step() went back from %d to %d; perhaps an older state was loaded" % (self._last, n))
            first = not self._begun
            self._samples = min(self._samples + samples * world_size, _MOST_STEPS)
            self._total = self._total if total is None else total
            self._epoch = self._epoch if epoch is None else epoch
            self._epochs = self._epochs if epochs is None else epochs
            self._begin(max(0, n - 1))
            self._last = n
            if told:
                self._figures.update(told)
                self._figures_step = n
            now = time.monotonic()
            ends = self._total > 0 and n == self._total
            if not first and not ends and now - self._sent_at < _PROGRESS_EVERY_S:
                self._unsent = True
                return
            self._sent_at = now
        self._progress()

    def pace(self, times):
        self._send({"type": "pace", "times": times}, may_be_dropped=True)

    def saved(self, path, n, seconds):
        with self._state:
            n = self._last if n is None else n
            if not self._phase:
                self._begin(n)
        try:
            seconds = max(0.0, float(seconds)) if math.isfinite(seconds) else 0.0
        except Exception as reason:
            self._warn_once("seconds", "saved(seconds=...) is left out: it is not a number: %s" % reason)
            seconds = 0.0
        size = 0
        try:
            size = os.path.getsize(path) if path and os.path.isfile(path) else 0
        except OSError:
            pass
        self._send({"type": "checkpoint", "step": n, "path": _text(path), "pause_s": seconds, "save_s": seconds,
                    "bytes": size})

    def error(self, kind, message):
        with self._state:
            n = self._last
            self._hello()
        self._send({"type": "error", "kind": kind, "message": message, "device": "", "step": n, "phase": "running",
                    "time_ns": time.time_ns(), "fatal": True, "exit_code": 1, "shrink": "unknown", "others_suspect": False})

    def should_save(self):
        with self._state:
            self._begin(self._last)
            self.will_ask()
            self._calls += 1
            while self._stopping and self._stop_at is None and not self._stop_now and not self._closed:
                self._state.wait()
            if not self._stopping or self._stop_at is None or self._calls < self._stop_at:
                return False
            self._enter("saving", self._last)
            return True

    def handle_stops(self):
        """Reports stop signals of this process to the agent from now on."""
        with self._state:
            self._hello()
        self.signals.install()

    def will_ask(self):
        """Reports that the script calls should_save(), so that the agent may order a save."""
        self.handle_stops()
        with self._state:
            if not self._asks:
                self._asks = True
                self._send({"type": "saves_on_stop"})

    def newest_step(self):
        return self._last

    def flush(self):
        """At the end of the process: reports the last step, with which ddprun sees whether the next attempt fails at the same step."""
        with self._state:
            if not self._unsent:
                return
            # Python is ending, so functions and tensors are no longer evaluated.
            self._figures = {name: value for name, value in self._figures.items() if isinstance(value, (int, float))}
        self._progress()

    # ---- messages to the agent ----

    def _hello(self):
        if self._begun:
            return
        self._begun = True
        self._send({"type": "hello", "protocol": PROTOCOL[0], "minor": PROTOCOL[1], "pid": os.getpid(),
                    "version": "import ddprun of Python " + platform.python_version()})
        threading.Thread(target=self._listen, name="ddprun", daemon=True).start()

    def _begin(self, n):
        self._hello()
        self._enter("running", n)

    def _enter(self, phase, n):
        if phase != self._phase:
            self._phase = phase
            self._send({"type": "phase", "phase": phase, "step": n, "epoch": self._epoch})

    def _progress(self):
        with self._state:
            self._unsent = False
            figures, self._figures = self._figures, {}
            message = {"type": "progress", "step": self._last, "steps_total": self._total, "epoch": self._epoch,
                       "epochs": self._epochs, "samples": self._samples}
            if figures and self._figures_step != self._last:
                message["figures_step"] = self._figures_step
        numbers = self._numbers(figures)  # not under the lock: reading a loss on a GPU waits for all work queued there
        for name in ("loss", "lr", "samples_per_s"):
            if name in numbers:
                message[name] = numbers.pop(name)
        if numbers:
            message["figures"] = [[name[:100], value] for name, value in list(numbers.items())[:_MOST_FIGURES]]
        if not self._send(message, may_be_dropped=True):
            with self._state:
                self._unsent = True

    def _numbers(self, figures):
        numbers = {}
        for name, value in figures.items():
            if name in _TAKEN:
                self._warn_once(name, "step(%s=...) is no name for a figure: lines of metrics.jsonl have it already" % name)
                continue
            try:
                numbers[name] = _plain(value() if callable(value) else value)
            except Exception as reason:
                self._no_number(name, reason)
        return numbers

    def _no_number(self, name, reason):
        self._warn_once(name, "step(%s=...) is left out: it is not a number: %s" % (name, reason))

    def _as_they_are(self, figures):
        """Copies of the figures, since the script may change a tensor before it is sent. On a GPU the copy is queued without a wait."""
        kept = {}
        for name, value in figures.items():
            if value is None:
                continue
            try:
                if hasattr(value, "detach"):
                    if value.numel() != 1:
                        raise ValueError("it has %d elements" % value.numel())
                    if not all(placement.is_replicate() for placement in getattr(value, "placements", ())):
                        raise ValueError("it is this rank's part of a distributed tensor; tell its full_tensor(), which all ranks have to call")
                    value = value.detach().clone()
                elif getattr(value, "size", 0) == 1 and hasattr(value, "copy"):  # a numpy value
                    value = value.copy()
                kept[name] = value
            except Exception as reason:
                self._no_number(name, reason)
        return kept

    def _whole(self, name, value):
        """The value of an optional argument as an integer, or None if it is not one: an invalid value must not end the run."""
        if value is None:
            return None
        try:
            number = int(value)
            if number == value and 0 <= number <= _MOST_STEPS:
                return number
            reason = "found %s" % (value,)
        except Exception as error:
            reason = error
        self._warn_once(name, "step(%s=...) is left out: it is not a whole number from 0 on: %s" % (name, reason))
        return None

    def _warn_once(self, what, text):
        if what not in self._warned:
            self._warned.add(what)
            print("ddprun: rank %d: %s" % (rank, text), file=sys.stderr, flush=True)

    def ask_store(self, operation, key, value=b""):
        """Sends a request to the store that all ranks of this round share. Returns the value of a key, after waiting for it (get), or b"" (set).
        None: the agent is gone."""
        key = key.encode()
        with self._state:
            self._hello()
            self._questions += 1
            number = self._questions
        self._send({"type": "store", "id": number, "op": operation, "keys": [len(key)], "value": len(value), "expected": 0, "amount": 0,
                    "timeout_ms": -1}, more=key + value)
        with self._state:
            while number not in self._answers and not self._closed:
                self._state.wait()
            return self._answers.pop(number, None)

    def _send(self, message, may_be_dropped=False, more=b""):
        """Returns False if the message was not sent. Never raises. Waits for a limited time if the agent does not read."""
        body = json.dumps(message).encode()
        frame = struct.pack("<II", len(body) + 4 + len(more), len(body)) + body + more
        with self._writing:
            sent = 0
            try:
                while not self._closed and sent < len(frame):
                    try:
                        sent += self._socket.send(frame[sent:], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                    except BlockingIOError:
                        if may_be_dropped and sent == 0:
                            return False
                        room = select.poll()
                        room.register(self._socket, select.POLLOUT)
                        if not room.poll(_PATIENCE_MS):
                            self._close()
            except OSError:
                self._close()
            finally:
                if 0 < sent < len(frame):  # a signal handler raised: later bytes would be read as the rest of this frame
                    self._close()
            return sent == len(frame)

    def _close(self):
        """Stops all sends. The descriptor stays open for the reader thread, which then ends and wakes the waiters."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self):
        """For a forked child: it is not the worker, and its parent's locks may be held forever."""
        self._closed = True
        self._socket.close()
        self.signals.in_child()

    # ---- the thread that reads ----

    def _listen(self):
        buffer = b""
        while not self._closed:
            try:
                received = self._socket.recv(65536)
            except OSError:
                received = b""
            if not received:
                break
            buffer += received
            while len(buffer) >= 8:
                length, json_length = struct.unpack_from("<II", buffer)
                if len(buffer) < 4 + length:
                    break
                body, more, buffer = buffer[8:8 + json_length], buffer[8 + json_length:4 + length], buffer[4 + length:]
                try:
                    self._hear(json.loads(body.decode()), more)
                except (ValueError, KeyError, TypeError):
                    pass  # a message of a newer minor version
        with self._state:
            self._closed = True
            self._state.notify_all()
        self.signals.closed()

    def _hear(self, message, more):
        kind = message["type"]
        with self._state:
            if kind == "where":
                self._send({"type": "position", "phase": self._phase or "running", "step": max(0, self._last), "stage": "somewhere"})
            elif kind == "stop" and message["mode"] == "save":
                # The step in progress counts as started, since other ranks may wait in it for this one. The next call of
                # should_save() waits for the answer.
                self._stopping = self.signals.saves = True
                self._send({"type": "stop_ready", "started": self._calls + 1})
            elif kind == "stop":
                self._stop_now = True
                self.signals.ordered()
            elif kind == "stop_at":
                self._stop_at = int(message["step"])
            elif kind == "store_reply":
                self._answers[message["id"]] = more if message["status"] == "ok" else None
            self._state.notify_all()


def _open():
    """Returns the channel whose descriptor the agent passed to this process, not to children of this process; None: there is none."""
    where, inode = os.environ.pop("DDPRUN_CHANNEL", ""), os.environ.pop("DDPRUN_CHANNEL_INODE", "")
    if not where.startswith("fd:"):
        return None
    try:
        number = int(where[3:])
        # A wrapper such as sudo closes descriptors. Another socket of the script may have this number then.
        if inode and os.fstat(number).st_ino != int(inode):
            return None
        os.set_inheritable(number, False)
        sock = socket.socket(fileno=number)
        sock.settimeout(None)  # removes the script's default timeout
    except (OSError, ValueError):
        return None
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        sock.detach()  # another file has that number
        return None
    return _Channel(sock)


_channel = _open()
_memory = os.environ.pop("DDPRUN_SNAPSHOTS", "") if _channel is not None else ""  # the agent's memory for snapshots
_node = _number("GROUP_RANK", 0)
# In a multi-node job: the number of the round, from 0 on; the address of this node for other nodes; LOW-HIGH or "". On one node each
# round but the first is a restart, so `restart` + `_round` differs between all rounds.
_round = _number("DDPRUN_GENERATION", 0)
_address, _ports = os.environ.get("DDPRUN_NODE_ADDRESS", ""), os.environ.get("DDPRUN_PORT_RANGE", "")
_snapshots = None
_watching = None  # set by watch()


def _in_forked_child():
    global _channel, _memory, _snapshots, _watching
    _memory, _snapshots, _watching = "", None, None
    if _channel is not None:
        _channel.forget()
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
    if not 0 <= n <= _MOST_STEPS:
        raise ValueError("ddprun: a step is a number from 0 on, found %d" % n)
    return n


def in_job():
    """Whether this process is a worker of ddprun."""
    return _channel is not None


def step(n, loss=None, samples=0, total=None, epoch=None, epochs=None, **figures):
    """Reports that step n is finished. Cheap enough for every step: the agent gets a message a few times a second.

    loss and other figures (lr, accuracy, ...): numbers, one-element tensors, or functions without arguments that return one. They are read only on
    rank 0 and only when they are sent, so that not every step waits for a loss on a GPU. A tensor keeps its value at this call. samples: processed by
    this rank since the last call. total, epochs: of the whole run, to estimate the remaining time. epoch: counted from 0. An omitted argument keeps
    its earlier value. An argument that is not a number is ignored with one warning; only an invalid n raises."""
    n = _step_number(n)
    if _channel is not None:
        times = _watching.step(n) if _watching is not None else None
        _channel.step(n, loss, samples, total, epoch, epochs, figures)
        if times:
            _channel.pace(times)
        if _watching is not None:
            _watching.loads()


def watch(model):
    """Measures the duration of each step on this rank, and the part of it spent waiting for other ranks. The agent uses this to name the rank that
    delays the others, and the cause. Returns the model.

    model: the model that is called in each step, with DistributedDataParallel or another wrapper that exchanges gradients. Call this once on every
    rank, before the first step. A script with several models calls it once for each. Without step() nothing is reported. Copies and pickles of the
    model are not watched."""
    global _watching
    if _channel is not None and world_size > 1:
        kinds = {parameter.device.type for parameter in model.parameters()}
        if kinds <= {"cpu"} or kinds <= {"cuda"}:
            from ddprun import _pace
            _watching = _watching or _pace.Pace(kinds == {"cuda"})
            _watching.watch(model)
        else:
            _say("watch() knows CPUs and CUDA devices only, and one of them for a model: %s is not watched" % ", ".join(sorted(kinds)))
    return model


def saved(path_or_step=None, step=None, seconds=0.0):
    """Reports a complete checkpoint by its path or its step. step: default is the newest step; seconds: duration of the save."""
    path = ""
    if isinstance(path_or_step, (str, bytes, os.PathLike)):
        path = os.path.abspath(os.fsdecode(path_or_step))
    elif path_or_step is not None:
        step = path_or_step
    step = None if step is None else _step_number(step)
    if _channel is not None:
        _channel.saved(path, step, seconds)


def error(kind, message=""):
    """Reports why this worker is about to fail; the script should then raise or exit. kind: "oom", "data", "config", "diverged" or "checkpoint" (a
    restart does not help), "lost_peer" (another rank failed first), or any other text, for a failure with no special meaning."""
    known = _KINDS.get(str(kind))
    text = _text(message if known else "%s: %s" % (kind, message) if message else kind)
    if _channel is not None:
        _channel.error(known or "exception", text)


def should_save():
    """Whether to save now and stop. Call it on every rank once after each step, or after every k-th step. After a stop request it returns True at the
    same call on all ranks. Until then it returns False and costs nothing."""
    return _channel is not None and _channel.should_save()


def stopped():
    """Ends this process with the exit code for "saved, run again". Call it after should_save() returned True. Without a stop request it counts as a
    failure."""
    sys.exit(REQUEUE)


@contextlib.contextmanager
def stop_at_step(save=None):
    """Put `with ddprun.stop_at_step(save):` around one step, on every rank. After a stop request all ranks leave at the same step: save() is called,
    and the process ends as with stopped(). Until then it costs nothing."""
    if _channel is not None:
        _channel.will_ask()
    yield
    if should_save():
        if save is not None:
            save()
        stopped()


def _say(text, with_rank=True):
    print("ddprun: %s%s" % ("rank %d: " % rank if with_rank else "", text), file=sys.stderr, flush=True)


def _opened_snapshots():
    global _memory, _snapshots
    if _snapshots is None and _memory:
        from ddprun import _snapshot
        where, _memory = _memory, ""
        try:
            _snapshots = _snapshot.Snapshots(where, rank, world_size, restart + _round, _say)
        except (OSError, ValueError) as reason:
            _say("no snapshots: the agent's memory cannot be opened: %s; the job goes on without" % reason)
    return _snapshots


def snapshot(state, step=None, replicated=False):
    """Copies `state` into memory that outlives this process; restore() returns it after a restart. Returns True if the copy is kept.

    state: a dict of state_dicts, numbers and other objects that can be pickled; tensors and arrays are copied by their bytes. The random state of
    Python, numpy and torch is kept with it. Call this on every rank after the same steps; two generations are kept. step: default is the newest step
    of step(). replicated: the state is the same on all ranks, as with DDP, so a rank without a copy may use that of another rank."""
    if step is not None:
        step = _step_number(step)
    snapshots = _opened_snapshots()
    if snapshots is None:
        return False
    if step is None and _channel is not None and _channel.newest_step() >= 0:
        step = _channel.newest_step()
    return snapshots.take(state, step, bool(replicated))


def restore(like=None):
    """Returns the state of the newest snapshot() that all ranks have, with tensors on the CPU. None: there is none, as in the first round. Call it on
    every rank, after the script has seeded torch: it restores the random state of the snapshot.

    like: the state that the script would pass to snapshot() now. A snapshot with a different tensor shape is refused, with a line on stderr."""
    global _agreements
    if _channel is None or (restart == 0 and _round == 0):
        return None
    from ddprun import _lending, _snapshot
    snapshots = _opened_snapshots()
    _agreements += 1
    talk = _lending.Talk(_channel.ask_store, "ddprun/restore/%d/%d/" % (restart, _agreements), rank, world_size)

    def agree(offer):
        decision = _lending.agree(talk, {**offer, "at": _node}, _snapshot.decide, snapshots, (_address, _ports), _say)
        if rank == 0 and decision.get("step") is None and decision.get("why"):
            _say(decision["why"], with_rank=False)
        return decision

    if snapshots is None:  # the other ranks wait for this offer
        agree(_snapshot.NOTHING)
        return None
    return snapshots.restore(like, agree)


_agreements = 0
