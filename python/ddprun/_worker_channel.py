"""The worker's end of the worker channel, a Unix socket to the agent. `import ddprun` sends and receives its messages here.
docs/worker-channel.md describes the protocol.

The problem. A script reports its progress to the agent, and receives requests from it. ddprun must not slow the script down,
and must not make it fail. The script's threads, its signal handlers and the reader thread use the Channel at the same time.

Rules that follow from this:
- A separate thread reads, since the agent can send a request while the script waits in a collective.
- No call raises an error if the agent has ended. A write waits at most 10 s for an agent that does not read; then the channel
  is closed.
- Progress is sent at most five times a second. If the socket is full, the message is dropped, and the next one has newer
  values.
- Metrics are evaluated only for a message that is sent, since reading a loss on a GPU waits for the GPU.

A stop. All ranks must save at the same step, but the request reaches them at different steps. Each rank therefore counts its
calls to should_save(). It answers the request with the number of the call that it can still reach, and waits in that call. The
agents choose the largest number, which every rank can reach. An example:

    rank 0   6 calls so far, answers 7       waits in call 7, which returns False    call 8 returns True: saves
    rank 1   7 calls so far, answers 8       waits in call 8                         call 8 returns True: saves

This module needs only Python 3.8 and the standard library."""

import contextlib
import json
import math
import os
import select
import socket
import struct
import sys
import threading
import time

from ddprun import _signals

PROTOCOL = (1, 4)  # version of the worker channel: major, minor
_PROGRESS_EVERY_S = 0.2  # minimum interval between progress messages; the agent ignores messages that are sent more often
_WRITE_TIMEOUT_MS = 10_000  # time limit in milliseconds for sending a message if the agent does not read its socket
_MAX_METRICS = 100
_MAX_TEXT_BYTES = 16_384
MAX_STEPS = 2 ** 63 - 1
_RESERVED_KEYS = ("event", "time_ns", "type", "step")  # reserved in metrics.jsonl


def _plain(value):
    """Converts a value to one that the channel's JSON can contain. JSON has no NaN and no infinities, so these become
    strings."""
    value = float(value.detach() if hasattr(value, "detach") else value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def bounded_text(value):
    return str(value)[:_MAX_TEXT_BYTES].encode("utf-8", "replace").decode()


class Channel:
    """The worker's end of the channel to its agent. The agent can send a request while the script waits in a collective, so a
    separate thread reads."""

    def __init__(self, sock, rank=0, world_size=1):
        self._socket = sock
        self._rank, self._world_size = rank, world_size
        self._state = threading.Condition()  # guards the members below; reentrant, since signal handlers take it, too
        self._closed = False
        self._hello_sent = False
        self._phase = ""
        self._newest_step = -1  # number of the newest finished step
        self._samples = 0
        self._total = 0
        self._epoch = 0
        self._epochs = 0
        self._sent_at = -math.inf
        self._unsent = False
        self._metrics = {}  # metrics not yet sent
        self._metrics_step = -1  # newest step for which the script has reported metrics
        self._answers = {}  # {request number: reply of the store}
        self._request_count = 0
        self._warned = set()
        self._calls = 0  # number of calls to should_save()
        self._stopping = False  # a stop request has arrived, and stop_ready has been sent as the reply
        self._stop_at = None
        self._stop_now = False
        self._should_save_reported = False  # the message saves_on_stop has been sent
        self._writing = threading.RLock()
        self.signals = _signals.StopSignals(lambda number: self._send({"type": "signal", "signal": number}))

    # ---- the script's side ----

    def step(self, n, loss, samples, total, epoch, epochs, figures):
        samples = self._valid_integer("samples", samples) or 0
        total, epoch, epochs = self._valid_integer("total", total), self._valid_integer("epoch", epoch), self._valid_integer("epochs", epochs)
        shown = self._copied_values({"loss": loss, **figures}) if self._rank == 0 else {}  # ddprun shows metrics of rank 0 only
        with self._state:
            if n < self._newest_step:
                self._warn_once("went back", "step() went back from %d to %d; perhaps an older state was loaded" % (self._newest_step, n))
            first = not self._hello_sent
            self._samples = min(self._samples + samples * self._world_size, MAX_STEPS)
            self._total = self._total if total is None else total
            self._epoch = self._epoch if epoch is None else epoch
            self._epochs = self._epochs if epochs is None else epochs
            self._begin(max(0, n - 1))
            self._newest_step = n
            if shown:
                self._metrics.update(shown)
                self._metrics_step = n
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
            n = self._newest_step if n is None else n
            if not self._phase:
                self._begin(n)
        try:
            seconds = max(0.0, float(seconds)) if math.isfinite(seconds) else 0.0
        except Exception as reason:
            self._warn_once("seconds", "saved(seconds=...) is ignored: expected a number: %s" % reason)
            seconds = 0.0
        size = 0
        try:
            size = os.path.getsize(path) if path and os.path.isfile(path) else 0
        except OSError:
            pass
        self._send({"type": "checkpoint", "step": n, "path": bounded_text(path), "pause_s": seconds, "save_s": seconds,
                    "bytes": size})

    def error(self, kind, message):
        with self._state:
            n = self._newest_step
            self._hello()
        self._send({"type": "error", "kind": kind, "message": message, "device": "", "step": n, "phase": "running",
                    "time_ns": time.time_ns(), "fatal": True, "exit_code": 1, "shrink": "unknown", "others_suspect": False})

    def should_save(self):
        with self._state:
            self._begin(self._newest_step)
            self.announce_should_save()
            self._calls += 1
            while self._stopping and self._stop_at is None and not self._stop_now and not self._closed:
                self._state.wait()
            if not self._stopping or self._stop_at is None or self._calls < self._stop_at:
                return False
            self._enter("saving", self._newest_step)
            return True

    def handle_stops(self):
        """Starts to report stop signals to the agent, if this process receives any."""
        with self._state:
            self._hello()
        self.signals.install()

    def announce_should_save(self):
        """Reports to the agent that the script calls should_save(). Without this report the agent never requests a save."""
        self.handle_stops()
        with self._state:
            if not self._should_save_reported:
                self._should_save_reported = True
                self._send({"type": "saves_on_stop"})

    def newest_step(self):
        return self._newest_step

    def flush(self):
        """Call this when the process ends. Sends the newest step, unless it was already sent. If the job fails, ddprun
        compares this step with the step of the next failure, to detect a job that always fails at the same step."""
        with self._state:
            if not self._unsent:
                return
            # While the interpreter shuts down, functions and tensors cannot be evaluated safely. So only plain numbers are
            # sent.
            self._metrics = {name: value for name, value in self._metrics.items() if isinstance(value, (int, float))}
        self._progress()

    # ---- messages to the agent ----

    def _hello(self):
        if self._hello_sent:
            return
        self._hello_sent = True
        self._send({"type": "hello", "protocol": PROTOCOL[0], "minor": PROTOCOL[1], "pid": os.getpid(),
                    "version": "import ddprun of Python " + sys.version.split()[0]})
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
            figures, self._metrics = self._metrics, {}
            message = {"type": "progress", "step": self._newest_step, "steps_total": self._total, "epoch": self._epoch,
                       "epochs": self._epochs, "samples": self._samples}
            if figures and self._metrics_step != self._newest_step:
                message["figures_step"] = self._metrics_step
        # The lock is not held here, since reading a loss on a GPU waits for all work in the GPU's queue.
        numbers = self._evaluated_numbers(figures)
        for name in ("loss", "lr", "samples_per_s"):
            if name in numbers:
                message[name] = numbers.pop(name)
        if numbers:
            message["figures"] = [[name[:100], value] for name, value in list(numbers.items())[:_MAX_METRICS]]
        if not self._send(message, may_be_dropped=True):
            with self._state:
                self._unsent = True

    def _evaluated_numbers(self, figures):
        numbers = {}
        for name, value in figures.items():
            if name in _RESERVED_KEYS:
                self._warn_once(name, "step(%s=...) is ignored: the name is reserved in metrics.jsonl; choose another name" % name)
                continue
            try:
                numbers[name] = _plain(value() if callable(value) else value)
            except Exception as reason:
                self._warn_not_a_number(name, reason)
        return numbers

    def _warn_not_a_number(self, name, reason):
        self._warn_once(name, "step(%s=...) is ignored: expected a number: %s" % (name, reason))

    def _copied_values(self, figures):
        """Returns copies of the metrics, since the script can overwrite a tensor before its value is sent. For a tensor on a
        GPU, the copy is only queued, so this call does not wait for it."""
        kept = {}
        for name, value in figures.items():
            if value is None:
                continue
            try:
                if hasattr(value, "detach"):
                    if value.numel() != 1:
                        raise ValueError("it has %d elements" % value.numel())
                    if not all(placement.is_replicate() for placement in getattr(value, "placements", ())):
                        raise ValueError("it is this rank's part of a distributed tensor; pass its full_tensor(), which all ranks must call")
                    value = value.detach().clone()
                elif getattr(value, "size", 0) == 1 and hasattr(value, "copy"):  # a numpy array or scalar
                    value = value.copy()
                kept[name] = value
            except Exception as reason:
                self._warn_not_a_number(name, reason)
        return kept

    def _valid_integer(self, name, value):
        """Returns an optional argument as an integer. For any other value it prints a warning and returns None, because a wrong
        argument must not end the training."""
        if value is None:
            return None
        try:
            number = int(value)
            if number == value and 0 <= number <= MAX_STEPS:
                return number
            reason = "found %s" % (value,)
        except Exception as error:
            reason = error
        self._warn_once(name, "step(%s=...) is ignored: expected a whole number, 0 or more: %s" % (name, reason))
        return None

    def _warn_once(self, what, text):
        if what not in self._warned:
            self._warned.add(what)
            print("ddprun: rank %d: %s" % (self._rank, text), file=sys.stderr, flush=True)

    def request_store(self, operation, key, value=b""):
        """Sends a request to the key-value store that all ranks of this round share. The operation "get" waits until the key
        exists, and returns its value. "set" returns b"". Both return None if the agent has ended."""
        key = key.encode()
        with self._state:
            self._hello()
            self._request_count += 1
            number = self._request_count
        self._send({"type": "store", "id": number, "op": operation, "keys": [len(key)], "value": len(value), "expected": 0, "amount": 0,
                    "timeout_ms": -1}, more=key + value)
        with self._state:
            while number not in self._answers and not self._closed:
                self._state.wait()
            return self._answers.pop(number, None)

    def _send(self, message, may_be_dropped=False, more=b""):
        """Sends one message. Returns False if it was not sent. Never raises an error. Waits at most 10 s if the agent does not
        read its socket."""
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
                        poller = select.poll()
                        poller.register(self._socket, select.POLLOUT)
                        if not poller.poll(_WRITE_TIMEOUT_MS):
                            self._close()
            except OSError:
                self._close()
            finally:
                # If a signal handler raises an exception in this loop, only a part of the frame was sent. The agent would read
                # the next message as the rest of this frame, so the channel is closed.
                if 0 < sent < len(frame):
                    self._close()
            return sent == len(frame)

    def _close(self):
        """Shuts the connection down, which ends the reader thread. The descriptor stays open until that thread has woken all
        waiting calls."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close_in_child(self):
        """Call this in a forked child, which is not the worker. It takes no lock. If another thread of the parent has a lock at
        the time of the fork, nothing ever releases that lock in the child."""
        self._closed = True
        self._socket.close()
        self.signals.in_child()

    # ---- the reader thread ----

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
                    self._on_message(json.loads(body.decode()), more)
                except (ValueError, KeyError, TypeError):
                    pass  # ignored, since the message may belong to a newer minor version of the protocol
        with self._state:
            self._closed = True
            self._state.notify_all()
        self.signals.closed()

    def _on_message(self, message, more):
        kind = message["type"]
        with self._state:
            if kind == "where":
                self._send({"type": "position", "phase": self._phase or "running", "step": max(0, self._newest_step), "stage": "somewhere"})
            elif kind == "stop" and message["mode"] == "save":
                # Other ranks may already wait for this rank in the step in progress, so this step counts as started. The step
                # ends with the next call to should_save(), and the agents must not choose an earlier call. The next call waits
                # for the choice of the agents (stop_at).
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


def from_agent(rank, world_size):
    """Returns the channel that the agent passed to this process, or None if it passed none. Removes the channel's variables
    from the environment, so that child processes do not use the channel."""
    where, inode = os.environ.pop("DDPRUN_CHANNEL", ""), os.environ.pop("DDPRUN_CHANNEL_INODE", "")
    if not where.startswith("fd:"):
        return None
    try:
        number = int(where[3:])
        # A wrapper such as sudo closes inherited descriptors. The script may then have opened another socket with the same
        # number.
        if inode and os.fstat(number).st_ino != int(inode):
            return None
        os.set_inheritable(number, False)
        sock = socket.socket(fileno=number)
        sock.settimeout(None)  # removes the default timeout that the script may have set
    except (OSError, ValueError):
        return None
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        sock.detach()  # leaves the descriptor open, since another file of the script now has this number
        return None
    return Channel(sock, rank, world_size)
