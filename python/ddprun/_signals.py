"""Stop signals that are sent to the worker process itself.

The problem. Slurm at a time limit, systemd at the end of a unit and `kill -- -PGID` send SIGTERM to every process of a job, not
only to the agent. The signal's default action ends the worker immediately. But the agents must first agree on a step at which
all ranks save. So a worker that can save reports the signal to its agent and continues, and its agent then has all ranks save.
This applies to scripts that use should_save(), stop_at_step() or a callback of integrations, and to the signals in
--signals-to-handle.

How it goes wrong. Python runs a signal handler only between two bytecodes of the main thread. While the main thread waits in a
collective, no handler runs. Two things must work even then:

- The report to the agent. The C handler of the interpreter writes the number of each signal into a pipe (signal.set_wakeup_fd),
  and a separate thread reads the pipe.
- The agent's request to end now. This request arrives as a message on the channel, and as a signal. The thread then restores
  the signal's default action and repeats the signal if it came earlier. signal.signal() works in the main thread only, so the
  thread calls PyOS_setsig through ctypes.

If the script has its own handler or ignores the signal, we leave that as it is, even if the script does so later. Forked
children get back the action from before our handler. Programs started with exec get the default action from the kernel.

DataLoader's workers. They receive the stop signal, too. If the signal ended these workers, a rank that needs one more batch
before the save would fail. So keep_loader() replaces torch's handler in these children, if they were forked. A DataLoader
worker then survives the signal while its parent lives and is going to save, which a byte of shared memory shows. Otherwise it
ends, as with torch's handler.

Rejected: to block the signals in these children and to read the sender with sigwaitinfo(). Programs that the data set starts
would inherit the blocked signals."""

import atexit
import contextlib
import mmap
import os
import signal
import sys
import threading

# bytes in the pipe that are not signal numbers: 0 if the agent requests that the worker ends, 255 if the channel is closed
_ORDERED, _CLOSED = 0, 255
_LOADERS = "torch.utils.data._utils.signal_handling"


def stop_signals():
    """Returns the numbers of the signals that stop the job."""
    names = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "").split(",")
    return sorted({int(getattr(signal, name)) for name in (name.strip() for name in names) if name.startswith("SIG") and hasattr(signal, name)})


class StopSignals:
    """Handles the stop signals of one worker process. A separate thread calls report(number) when a signal arrives."""

    def __init__(self, report):
        self._report = report
        self._pid = os.getpid()
        self._earlier_actions = {}  # {signal number: its action before our handler}
        self._arrived = set()
        self._passed = set()  # signals for which Python has already called our handler in the main thread
        self._restored = False  # True after the earlier actions of the stop signals were restored
        self._tried = False
        self.saves = False  # True after the agent has requested that this worker saves
        self._reads = self._writes = -1
        self._set_action = None
        # This byte is shared with forked children. It is 1 if DataLoader workers must ignore stop signals.
        self.keeps_loaders = mmap.mmap(-1, 1)
        self._forking = threading.local()  # for each thread: the signal mask before a fork

    def install(self):
        """Installs the handlers. Only the main thread can do this. A call in another thread does nothing, and the next call
        tries again."""
        if self._tried or threading.current_thread() is not threading.main_thread():
            return
        self._tried = True
        import multiprocessing.util  # noqa: F401  its exit function ends loaders by SIGTERM; ours must run before it
        atexit.register(self._at_exit)
        self.keeps_loaders[0] = 0 if self._restored else 1
        self.take(lambda handler: handler in (signal.SIG_DFL, signal.default_int_handler))

    def take(self, is_free):
        """Installs our handler for each stop signal whose current action is accepted by is_free()."""
        free = [number for number in stop_signals() if is_free(signal.getsignal(number))]
        if self._restored or not free or not self._prepare():
            return
        for number in free:
            before = signal.getsignal(number)
            self._earlier_actions.setdefault(number, before if before is signal.default_int_handler else signal.SIG_DFL)
            signal.signal(number, self.handle)
            # After a signal, interrupted system calls are restarted, since libraries may not expect EINTR.
            signal.siginterrupt(number, False)

    def _prepare(self):
        """Starts the thread that reads the pipe. Returns False if ctypes is missing. Without ctypes the thread could not
        restore the default action, so then no handler may be installed."""
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
            # An event loop of the script uses this wakeup descriptor, so we restore it. handle() writes to our pipe instead.
            signal.set_wakeup_fd(theirs)
        threading.Thread(target=self._watch, name="ddprun signals", daemon=True).start()
        return True

    def handle(self, number, frame):
        """This is the signal handler. Python calls it in the main thread, perhaps long after the signal arrived."""
        if self._restored or os.getpid() != self._pid:  # the process id differs in a child that was just forked
            before = self._earlier_actions[number]
            if callable(before):
                before(number, frame)
            else:
                signal.signal(number, before)
                os.kill(os.getpid(), number)
        else:
            self._passed.add(number)
            self._write(number)

    def ordered(self):
        """Call this when the agent requests that the worker ends now."""
        self._write(_ORDERED)

    def closed(self):
        """Call this when the channel is closed. The agent has then ended and can no longer request a save. So each stop signal
        gets back the action that it had before our handler was installed."""
        self._write(_CLOSED)
        self.keeps_loaders[0] = 0
        self._restored = True

    def _at_exit(self):
        if os.getpid() != self._pid:
            return
        self.keeps_loaders[0] = 0
        # At exit the interpreter resets SIGTERM to the default action. If a stop signal arrived after that, the exit code would
        # be 143 instead of 85 (saved, run again). Therefore stop signals are ignored from here on.
        for number in self._earlier_actions if self.saves and not self._restored else ():
            if signal.getsignal(number) == self.handle:
                signal.signal(number, signal.SIG_IGN)

    def _write(self, what):
        if self._writes >= 0:
            with contextlib.suppress(OSError):  # the write fails if the pipe is full, but then the thread wakes anyway
                os.write(self._writes, bytes([what]))

    # ---- the thread ----

    def _watch(self):
        while True:
            for what in os.read(self._reads, 64):
                if what in (_ORDERED, _CLOSED):
                    self._give_back(what == _ORDERED)
                elif what in self._earlier_actions:
                    first = what not in self._arrived
                    self._arrived.add(what)
                    if self._restored:
                        self._repeat(what)
                    elif first:
                        self._report(what)

    def _give_back(self, ordered):
        self.keeps_loaders[0] = 0
        self._restored = True
        for number, before in self._earlier_actions.items():
            if before is signal.SIG_DFL and signal.getsignal(number) == self.handle:
                self._set_action(number, None)
        if ordered:
            for number in self._arrived:
                self._repeat(number)

    def _repeat(self, number):
        """Sends a signal to this process again, if the signal arrived before its earlier action was restored."""
        if signal.getsignal(number) != self.handle:
            return
        if self._earlier_actions[number] is signal.SIG_DFL or number in self._passed:
            self._passed.discard(number)
            os.kill(self._pid, number)

    # ---- a forked child ----

    def before_fork(self):
        """Blocks our signals in the thread that forks. Until in_child() has run, the child uses the same pipe as its parent. If
        a signal for the child came in that time, the parent would read it from the pipe and would stop the job."""
        if self._earlier_actions:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._earlier_actions)

    def after_fork(self):
        mask = getattr(self._forking, "mask", None)
        if mask is not None:
            self._forking.mask = None
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def in_child(self):
        """Restores the earlier actions in a forked child. If the child becomes a worker of torch's DataLoader, it calls
        keep_loader() when it installs its signal handlers."""
        with contextlib.suppress(ValueError):
            for number, before in self._earlier_actions.items():
                if signal.getsignal(number) == self.handle:
                    signal.signal(number, before)
            if self._writes >= 0:
                theirs = signal.set_wakeup_fd(-1)
                if theirs not in (-1, self._writes):
                    signal.set_wakeup_fd(theirs)
        for end in (self._reads, self._writes):
            if end >= 0:
                os.close(end)
        self._earlier_actions, self._reads, self._writes = {}, -1, -1
        self.after_fork()
        module = sys.modules.get(_LOADERS)
        theirs = getattr(module, "_set_worker_signal_handlers", None)
        if theirs is not None and stop_signals():
            def set_handlers():
                theirs()
                keep_loader(self.keeps_loaders, stop_signals(), os.getppid())
            module._set_worker_signal_handlers = set_handlers


def keep_loader(keeps, numbers, parent):
    """Handles stop signals in a worker of torch's DataLoader. A signal ends this process only if its parent has ended or is not
    going to save. The main thread may spend a long time in library code, where Python calls no handlers, so a thread handles
    the signals as well."""
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

    # torch installs its SIGTERM handler in C, where getsignal() cannot detect it. Our handler therefore always replaces the
    # handler for SIGTERM.
    mine = [number for number in numbers
            if number == signal.SIGTERM or signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="ddprun signals", daemon=True).start()
    for number in mine:
        signal.signal(number, handle)
        signal.siginterrupt(number, False)
