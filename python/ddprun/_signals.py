"""Stop signals that reach the worker itself.

Slurm at a time limit, systemd at the end of a unit and `kill -- -PGID` send SIGTERM to every process, not only to the agent. The default action would
end a worker while its agent still agrees with the others on the step at which all of them save. So a worker that uses should_save(), stop_at_step()
or a callback of integrations reports the signal to its agent and continues. The agent then has all ranks save. The handled signals are those of the
agent's --signals-to-handle.

A handler in Python runs between two bytecodes, so not while the main thread waits in a collective. Two things must work even then:

- The report. The interpreter's own C handler writes the number of each signal into a pipe (signal.set_wakeup_fd), and a thread reads it.
- The agent's order to end now, which arrives over the channel and as a signal. The same thread restores the kernel's default action
  (PyOS_setsig by ctypes: signal.signal() is for the main thread only). Then it repeats the signal if that came before.

We keep a handler of the script, an ignored signal, and a handler that the script sets later. Forked children get the earlier action back. Started
programs get the default action from the kernel.

DataLoader's workers get the signal too, and a rank that needs one more batch would fail without them. In such a child (fork only) keep_loader()
replaces torch's handler. The child continues while its parent lives and will save; one byte of shared memory shows that. Otherwise the child ends, as
with torch's handler. We also tried to block the signals there and to read the sender with sigwaitinfo(). We rejected that, since programs that the
data set starts would inherit the blocked signals."""

import atexit
import contextlib
import mmap
import os
import signal
import sys
import threading

_ORDERED, _CLOSED = 0, 255  # bytes in the pipe that are not signal numbers
_LOADERS = "torch.utils.data._utils.signal_handling"


def stop_signals():
    """The numbers of the signals that stop the job."""
    names = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "").split(",")
    return sorted({int(getattr(signal, name)) for name in (name.strip() for name in names) if name.startswith("SIG") and hasattr(signal, name)})


class StopSignals:
    """Handles the stop signals of one worker process. A thread of this class calls report(number)."""

    def __init__(self, report):
        self._report = report
        self._pid = os.getpid()
        self._mine = {}  # from signal number to the earlier action
        self._arrived = set()
        self._passed = set()  # signals of _mine after which the main thread has continued
        self._off = False  # the earlier actions are restored
        self._tried = False
        self.saves = False  # the agent has ordered a save
        self._reads = self._writes = -1
        self._set_action = None
        self.keeps_loaders = mmap.mmap(-1, 1)  # 1: loaders continue at a signal
        self._forking = threading.local()  # the signal mask of a thread that forks

    def install(self):
        """Works in the main thread only. In another thread it does nothing, and the next call tries again."""
        if self._tried or threading.current_thread() is not threading.main_thread():
            return
        self._tried = True
        import multiprocessing.util  # noqa: F401  its exit function ends loaders by SIGTERM and waits, so ours must be registered later
        atexit.register(self._at_exit)
        self.keeps_loaders[0] = 0 if self._off else 1
        self.take(lambda handler: handler in (signal.SIG_DFL, signal.default_int_handler))

    def take(self, is_free):
        """Handles the signals whose action is_free() accepts."""
        free = [number for number in stop_signals() if is_free(signal.getsignal(number))]
        if self._off or not free or not self._prepare():
            return
        for number in free:
            before = signal.getsignal(number)
            self._mine.setdefault(number, before if before is signal.default_int_handler else signal.SIG_DFL)
            signal.signal(number, self.handle)
            signal.siginterrupt(number, False)  # libraries may not expect a signal, so their calls are not interrupted

    def _prepare(self):
        """Returns False without ctypes: then a thread could not restore the action, so the signals keep theirs."""
        if self._set_action is not None:
            return True
        try:
            import ctypes
            set_action = ctypes.pythonapi.PyOS_setsig
        except (ImportError, AttributeError):
            return False
        set_action.argtypes, set_action.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        self._set_action = set_action
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        theirs = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        if theirs >= 0:
            signal.set_wakeup_fd(theirs)  # an event loop of the script has it; then handle() writes
        threading.Thread(target=self._watch, name="ddprun signals", daemon=True).start()
        return True

    def handle(self, number, frame):
        """Runs in the main thread, perhaps long after the signal."""
        if self._off or os.getpid() != self._pid:  # the process may be a child, forked a moment ago
            before = self._mine[number]
            if callable(before):
                before(number, frame)
            else:
                signal.signal(number, before)
                os.kill(os.getpid(), number)
        else:
            self._passed.add(number)
            self._write(number)

    def ordered(self):
        """The agent orders this worker to end now."""
        self._write(_ORDERED)

    def closed(self):
        """The agent is gone, so it can no longer order a save."""
        self._write(_CLOSED)
        self.keeps_loaders[0] = 0
        self._off = True

    def _at_exit(self):
        if os.getpid() != self._pid:
            return
        self.keeps_loaders[0] = 0
        # At its end the interpreter restores the default action of SIGTERM. A late signal of the same stop must not turn exit code 85 into 143.
        for number in self._mine if self.saves and not self._off else ():
            if signal.getsignal(number) == self.handle:
                signal.signal(number, signal.SIG_IGN)

    def _write(self, what):
        if self._writes >= 0:
            with contextlib.suppress(OSError):  # the pipe is full, so the thread wakes anyway
                os.write(self._writes, bytes([what]))

    # ---- the thread ----

    def _watch(self):
        while True:
            for what in os.read(self._reads, 64):
                if what in (_ORDERED, _CLOSED):
                    self._give_back(what == _ORDERED)
                elif what in self._mine:
                    first = what not in self._arrived
                    self._arrived.add(what)
                    if self._off:
                        self._repeat(what)
                    elif first:
                        self._report(what)

    def _give_back(self, ordered):
        self.keeps_loaders[0] = 0
        self._off = True
        for number, before in self._mine.items():
            if before is signal.SIG_DFL and signal.getsignal(number) == self.handle:
                self._set_action(number, None)
        if ordered:
            for number in self._arrived:
                self._repeat(number)

    def _repeat(self, number):
        """Repeats a signal that came before the default action was restored."""
        if signal.getsignal(number) != self.handle:
            return
        if self._mine[number] is signal.SIG_DFL or number in self._passed:
            self._passed.discard(number)
            os.kill(self._pid, number)

    # ---- a forked child ----

    def before_fork(self):
        """Blocks our signals in this thread. Until in_child() the child writes into the pipe of its parent, and a signal of the child would stop the
        job."""
        if self._mine:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._mine)

    def after_fork(self):
        mask = getattr(self._forking, "mask", None)
        if mask is not None:
            self._forking.mask = None
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def in_child(self):
        """Restores the earlier actions. In a child that becomes a worker of torch's DataLoader, keep_loader() follows."""
        with contextlib.suppress(ValueError):
            for number, before in self._mine.items():
                if signal.getsignal(number) == self.handle:
                    signal.signal(number, before)
            if self._writes >= 0:
                theirs = signal.set_wakeup_fd(-1)
                if theirs not in (-1, self._writes):
                    signal.set_wakeup_fd(theirs)
        for end in (self._reads, self._writes):
            if end >= 0:
                os.close(end)
        self._mine, self._reads, self._writes = {}, -1, -1
        self.after_fork()
        module = sys.modules.get(_LOADERS)
        theirs = getattr(module, "_set_worker_signal_handlers", None)
        if theirs is not None and stop_signals():
            def set_handlers():
                theirs()
                keep_loader(self.keeps_loaders, stop_signals(), os.getppid())
            module._set_worker_signal_handlers = set_handlers


def keep_loader(keeps, numbers, parent):
    """For a worker of torch's DataLoader: stop signals end it only if its parent is gone or will not save. A thread decides, since the main thread
    may spend a long time in a library's code."""
    def ends():
        return os.getppid() != parent or keeps[0] == 0

    def handle(number, frame):
        if ends():
            if number == signal.SIGINT:
                signal.default_int_handler(number, frame)
            os._exit(128 + number)

    def watch():
        while True:
            for number in os.read(reads, 64):
                if number in numbers and number != signal.SIGINT and ends():
                    os._exit(128 + number)

    # torch's handler of SIGTERM is C code, which getsignal() does not see.
    mine = [number for number in numbers
            if number == signal.SIGTERM or signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="ddprun signals", daemon=True).start()
    for number in mine:
        signal.signal(number, handle)
        signal.siginterrupt(number, False)
