"""Makes a Python interpreter a spare: `ddprun --standby N --preload MODULES script.py`.

The problem. A script's restart spends nearly all of its time in `import torch`, and in `import torch._dynamo` by DDP(). A spare
is an interpreter that has imported both and waits. After a failure it becomes a worker. The script must then see what it sees
in a fresh interpreter.

How it goes wrong:
- A fork of a loaded process is sound only with one thread and without CUDA. All children share the hash seed and random state.
- A program that waits and runs the script through runpy leaves its frames below the script's. It must also build __main__, the
  exit after Ctrl-C and the traceback by hand.
- A library or a variable changes after the import. The script then runs with modules that a fresh interpreter would not load.
- A Python that ignores this file would run the script immediately, as a worker without a rank.

The idea. ddprun starts a spare with the command of a worker and puts this folder first in PYTHONPATH. Python runs sitecustomize
after its own setup and before it looks at the script. Here the spare imports the modules and waits. It then takes over the
environment, arguments, output and channel of a worker, and this file ends. Python continues with the script by itself:

    python -u -c PLACEHOLDER python -u train.py   Python runs this file, which calls exec with the rest of the command
    python -u train.py                            this file again: imports torch, sends "ready", waits
    a request from the agent                      sends "heard", checks what has changed, sends "runs", ends
                                                  Python runs train.py as the worker

PLACEHOLDER (launcher/workers/worker_environment.cpp) only reports that this Python does not run this file. If a variable or a file
has changed, the spare calls exec with the worker's command. So the process stays the same, with a fresh interpreter in it.

The cost. With torch 2.11 a spare holds 339 MB of private memory. The detour over PLACEHOLDER takes 20 ms. torch brings some
1,800 files to check at the takeover. So one spare checks them for all that start together, and shares the result (the board).

What was tried. inotify instead of the check: to close the watches takes 10 to 20 ms. Import at low priority in a thread:
thread-local settings end up in the wrong thread. To drop library pages with MADV_DONTNEED, for a faster end of the process:
other threads can lose data without an error. docs/internals/decisions/launcher/spare-interpreters.md has the figures.

launcher/spares/ is the other end. This file needs Python 3.8 and only the standard library. No other module imports it."""

import os
import sys
import time

CONTROL = 3  # the descriptor of the control socket; the worker's channel takes its place
LOOKS_WITHIN_S = 1.0  # time that a spare waits for the one that checks the files
WORKER_VARIABLES = {"LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE",
                    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
WORKER_PREFIXES = ("TORCHELASTIC_", "DDPRUN_")


# ---- decisions, which are pure ----

def of_worker(name):
    """Whether this variable differs between workers, or between a worker and its replacement."""
    return name in WORKER_VARIABLES or name.startswith(WORKER_PREFIXES)


def first_difference(before, now):
    """The first key, in sorted order, at which two dictionaries differ; None: they are equal."""
    if before == now:
        return None
    for key in sorted(set(before) | set(now)):
        if before.get(key) != now.get(key):
            return key
    return None


def is_below(path, folders):
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def foreign_module(places, folders):
    """The first module of {module: its files or folders} that is not below these folders; None: all are."""
    for name in sorted(places):
        if not all(is_below(place, folders) for place in places[name]):
            return name
    return None


def why_plainly(before, now, hidden):
    """Why the script needs a fresh interpreter; empty: the spare is equal to one. `before` and `now` are Sights."""
    variable = first_difference({k: v for k, v in before.environment.items() if not of_worker(k)},
                                {k: v for k, v in now.environment.items() if not of_worker(k)})
    if variable:
        return "the variable " + variable + " has changed"
    file = first_difference(before.files, now.files)
    if file:
        return file + " has changed"
    if hidden:
        return hidden + " is found before the module that was preloaded"
    return ""


class Sight:
    """The state on which the use of a spare depends, at one moment: the script's environment, and {file: its version}."""

    def __init__(self, environment, files):
        self.environment = environment
        self.files = files


class FirstSight(Sight):
    """The Sight of a spare that has just loaded. `text` is equal for spares with the same files in the same versions."""

    def __init__(self, environment, files):
        Sight.__init__(self, environment, files)
        self.text = repr(sorted(files.items())).encode("ascii", "backslashreplace")


# ---- observations of the system ----

def versions_of(files):
    """{file: its version}. The loop calls only os.stat: torch brings 1,800 files, and the new workers wait for this."""
    look, versions = os.stat, {}
    for file in files:
        try:
            status = look(file)
        except OSError:
            versions[file] = None
        else:
            versions[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return versions


def library_folders():
    """Folders of the standard library and of installed packages, also as real paths: a virtual environment may be a link."""
    import site
    import sysconfig

    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return sorted({path for folder in folders for path in (folder, os.path.realpath(folder))})


def places_of(names):
    """{module: its file, or its folders if it has no file}. Built-in modules and modules that code created have neither."""
    places = {}
    for name in names:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is None:
            continue
        if spec.has_location and isinstance(spec.origin, str):
            places[name] = [spec.origin]
        elif spec.submodule_search_locations:
            places[name] = list(spec.submodule_search_locations)
    return places


def watched_files(places, libraries):
    """The interpreter, the preloaded modules, and the files that can add folders to sys.path."""
    files = {os.path.realpath(sys.executable), sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")}
    for of_module in places.values():
        files.update(of_module)
    for folder in libraries:
        try:
            files.update(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pth"))
            files.add(os.path.join(folder, "sitecustomize.py"))
        except OSError:
            pass
    return files


def earlier_folders():
    """The folders that a fresh interpreter searches first: the script's folder or the working directory, and PYTHONPATH."""
    script = sys.argv[0] if sys.argv and sys.argv[0] not in ("-m", "") else ""
    if not script:
        folder = os.getcwd()
    elif os.path.isdir(script):
        folder = script
    else:
        folder = os.path.dirname(os.path.realpath(script))
    return [folder] + [path or "." for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)]


def hidden_by(names, folders, libraries):
    """The path of the first module in these folders that hides a preloaded one; empty: none. names: what top_level() returns."""
    for folder in folders:
        if os.path.realpath(folder) in libraries:
            continue
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in sorted(entries):
            stem, dot, kind = entry.partition(".")
            if stem not in names:
                continue
            path = os.path.join(folder, entry)
            if os.path.realpath(path) == names[stem]:
                continue
            if (kind == "py" or kind == "pyc" or kind.endswith("so")) if dot else os.path.exists(os.path.join(path, "__init__.py")):
                return path
    return ""


def top_level(names, places):
    """{top-level name: the real path of its file or its folder}."""
    found = {}
    for name in {name.partition(".")[0] for name in names}:
        place = os.path.realpath(places[name][0]) if places.get(name) else ""
        found[name] = os.path.dirname(place) if os.path.basename(place).startswith("__init__.") else place
    return found


def private_memory():
    """Bytes of memory that no other process shares."""
    try:
        with open("/proc/self/smaps_rollup") as rollup:
            return 1024 * sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    except (OSError, ValueError):
        return 0


# ---- memory that the kernel frees quickly ----

class Mapping:
    """A mapping of an address space: its size, and the anonymous bytes that are in RAM."""

    def __init__(self, begin, end, rights, path):
        self.begin, self.size, self.rights, self.path = begin, end - begin, rights, path
        self.anonymous = 0


def mappings_of(smaps):
    """The mappings in the lines of a /proc/PID/smaps."""
    found = []
    for line in smaps:
        words = line.split(None, 5)
        if not words[0].endswith(":"):
            begin, end = (int(address, 16) for address in words[0].split("-"))
            found.append(Mapping(begin, end, words[1], words[5].rstrip("\n") if len(words) > 5 else ""))
        elif words[0] == "Anonymous:":
            found[-1].anonymous = 1024 * int(words[1])
    return found


def for_huge_pages(mapping):
    """Whether the mapping is data of the program and 7/8 of it is in use. A huge page also puts the unused rest into RAM."""
    return mapping.rights == "rw-p" and mapping.path in ("", "[heap]") and 8 * mapping.anonymous >= 7 * mapping.size


def huge_pages_are_allowed():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as choice:
            return "[never]" not in choice.read()
    except OSError:
        return False


def use_huge_pages():
    """Moves data into pages of 2 MB. The kernel then frees the memory of a killed process sooner, and the next worker waits for
    that. No byte changes, even if other threads write meanwhile. A failure leaves the memory as it is."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None or not huge_pages_are_allowed():
        return  # torch and numpy import ctypes; without them data is small, and the script must not find it imported
    try:
        advise = ctypes.CDLL(None).madvise
        with open("/proc/self/smaps", encoding="utf-8", errors="replace", newline="\n") as smaps:
            mappings = mappings_of(smaps)
        for mapping in filter(for_huge_pages, mappings):
            # MADV_COLLAPSE, since Linux 6.1; an older kernel refuses it.
            advise(ctypes.c_void_p(mapping.begin), ctypes.c_size_t(mapping.size), 25)
    except Exception:  # an audit hook may refuse anything; huge pages are optional
        pass


# ---- low priority ----

def priority_comes_back():
    """Whether this process may leave the scheduler's idle class again. A separate thread tries it, since it may fail."""
    import _thread

    answer = []
    done = _thread.allocate_lock()
    done.acquire()

    def attempt():
        try:
            own = _thread.get_native_id()
            os.sched_setscheduler(own, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(own, os.SCHED_OTHER, os.sched_param(0))
            answer.append(True)
        except OSError:
            pass
        finally:
            done.release()

    _thread.start_new_thread(attempt, ())
    done.acquire()
    return bool(answer)


def write_own(file, text):
    """Writes to a file below /proc/self. Returns the error or None."""
    try:
        with open("/proc/self/" + file, "w") as own:
            own.write(text)
        return None
    except OSError as error:
        return error


def own_threads():
    try:
        return os.listdir("/proc/self/task")
    except OSError:
        return ["0"]  # 0 is the calling thread


def take_title(title):
    """Sets the title of this thread and of the threads that libraries have started."""
    write_own("comm", title)
    for thread in own_threads():
        write_own("task/" + thread + "/comm", title)


class LowPriority:
    """A context in which other processes run first: by the idle class, or by a low weight of the session if supported."""

    def __enter__(self):
        self.idle = os.sched_getscheduler(0) == os.SCHED_OTHER and priority_comes_back()
        if self.idle:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            write_own("autogroup", "19")

    def __exit__(self, *unused):
        if self.idle:
            for thread in own_threads():  # threads of libraries have inherited the class
                try:
                    os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
                except OSError:
                    pass  # the thread has ended
            return
        for _ in range(20):  # the kernel accepts one change in 0.1 s, for all sessions together
            if not isinstance(write_own("autogroup", "0"), BlockingIOError):
                return
            time.sleep(0.05)


# ---- the control socket ----

def say(*lines):
    try:
        os.write(CONTROL, "\n".join(line.replace("\n", " ")[:1000] for line in lines).encode("utf-8", "replace"))
    except OSError:
        pass  # the agent is gone, and the next read shows it


def wait_for_orders():
    """Returns (request, descriptors of stdout, stderr and channel, descriptor of the board or None, looks). looks: this spare
    checks the files for all. Exits when the agent has ended."""
    import _socket

    control = _socket.socket(fileno=CONTROL)
    fds = []
    try:
        packet, ancillary, _, _ = control.recvmsg(16, 256)
        for level, kind, data in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += [int.from_bytes(data[i:i + 4], sys.byteorder) for i in range(0, len(data) - 3, 4)]
    finally:
        control.detach()
    if len(fds) < 4:
        os._exit(1 if packet else 0)  # an incomplete request, or the end of the agent
    size = os.fstat(fds[0]).st_size
    request = b""
    while len(request) < size:
        piece = os.pread(fds[0], size - len(request), len(request))
        if not piece:
            os._exit(1)
        request += piece
    os.close(fds[0])
    board = fds[4] if len(fds) > 4 else None
    return request, fds[1:4], board, packet != b"wait"


def wait_for_another():
    """Waits until the spare that checks the files has finished. It may have died or been stopped, so the wait is short."""
    import _socket

    control = _socket.socket(fileno=CONTROL)
    try:
        control.settimeout(LOOKS_WITHIN_S)
        control.recv(16)
        control.settimeout(None)
    except OSError:
        pass
    finally:
        control.detach()


def read_board(board, most):
    try:
        return os.pread(board, most, 0)
    except OSError:
        return b""  # treated as an empty board


def write_board(board, text):
    try:
        os.pwrite(board, text, 0)
    except OSError:
        pass  # no memory: the other spares check the files themselves


def versions_now(before, board, looks):
    """The present versions of before.files. Spares that become workers together nearly always depend on the same files. So one
    of them checks its files, and writes them to the board if they are unchanged. A spare with the same files in the same
    versions need not check them. If there is no board (None), each spare checks."""
    if not looks:
        wait_for_another()
        if read_board(board, len(before.text) + 1) == before.text:
            return before.files
    now = versions_of(before.files)
    if looks and board is not None and now == before.files:
        write_board(board, before.text)
    return now


def parse_request(request):
    """(arguments with the interpreter first, environment as a list of (name, value))."""
    texts = request.split(b"\0")[:-1]
    count = int(texts[0])
    arguments, variables = texts[2:2 + count], texts[2 + count:]
    return arguments, [tuple(variable.split(b"=", 1)) for variable in variables]


# ---- becoming a spare, and the worker ----

def given_environment():
    """The environment at the start of this process, in its order. Python and .pth files may have changed os.environ since."""
    try:
        with open("/proc/self/environ", "rb") as own:
            variables = [variable.split(b"=", 1) for variable in own.read().split(b"\0") if b"=" in variable]
    except OSError:  # a program with extra privileges may not read its own entry
        variables = os.environb.items()
    return {os.fsdecode(name): os.fsdecode(value) for name, value in variables}


def become(arguments, environment):
    """Replaces this process by another program. Resets the signals that Python ignores from its start."""
    import _signal

    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.execve(arguments[0], arguments, environment)


def take_output(fds):
    """Moves stdout and stderr to descriptors 1 and 2, and initializes the streams for the new files."""
    for number, fd in zip((1, 2), fds):
        os.dup2(fd, number)
        os.close(fd)
    for stream, number in ((sys.__stdout__, 1), (sys.__stderr__, 2)):
        before = stream.buffer  # a FileIO, since Python was started with -u
        raw = type(before)(number, "wb", closefd=False)
        raw.name = before.name
        stream.__init__(raw, stream.encoding, stream.errors, "\n", stream.line_buffering, stream.write_through)


def take_environment(variables, changed):
    os.environ.clear()
    for name, value in variables:
        os.environ[os.fsdecode(name)] = os.fsdecode(value)
    for name, value in changed.items():  # a module made this change during its import
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def take_arguments(arguments):
    arguments = [os.fsdecode(argument) for argument in arguments]
    sys.argv[1:] = arguments[len(arguments) - len(sys.argv) + 1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = arguments


def look_again():
    """Makes importers find files that are newer than their caches."""
    for finder in list(sys.path_importer_cache.values()):
        if hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def real_sitecustomize(own_folder):
    """Imports the sitecustomize of the installation, as Python would have done. Returns whether there is one."""
    sys.path[:] = [path for path in sys.path if path != own_folder]
    sys.path_importer_cache.pop(own_folder, None)
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401: not this file
        return True
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours
        return False


def load(modules, environment):
    """Imports the modules. Returns (folders of libraries, watched files, top-level names, changes of the environment)."""
    import importlib

    before = set(sys.modules)
    libraries = library_folders()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            leave("cannot preload " + name + ": " + type(error).__name__ + ": " + str(error))
    if "ddprun" in sys.modules:
        leave("will not preload ddprun: a worker imports it when it knows its rank")
    new = set(sys.modules) - before
    places = places_of(new)
    foreign = foreign_module(places, libraries)
    if foreign:
        leave("will not preload " + foreign + ", which lies in " + places[foreign][0] +
              ": only installed packages and the standard library are preloaded")
    changed = {name: os.environ.get(name) for name in set(os.environ) | set(environment)
               if os.environ.get(name) != environment.get(name)}
    return libraries, watched_files(places, libraries), top_level(new, places), changed


def leave(why):
    say("unfit", why)
    os._exit(0)


def be_spare():
    if sys.argv[0] == "-c":  # PLACEHOLDER; its arguments are the worker's command
        become(sys.argv[1:], given_environment())
    began = time.monotonic()
    given = given_environment()
    own_folder = os.path.dirname(os.path.abspath(__file__))
    modules = [name for name in os.environ.pop("DDPRUN_PRELOAD").split(",") if name]
    path = os.environ["PYTHONPATH"].split(os.pathsep, 1)  # this folder is first
    if len(path) > 1:
        os.environ["PYTHONPATH"] = path[1]
    elif os.environ.pop("DDPRUN_PRELOAD_EMPTY_PATH", None):
        os.environ["PYTHONPATH"] = ""
    else:
        del os.environ["PYTHONPATH"]
    for name in ("DDPRUN_CHANNEL", "DDPRUN_CHANNEL_INODE", "DDPRUN_SNAPSHOTS"):  # they belong to the worker
        os.environ.pop(name, None)
    environment = {name: value for name, value in given.items() if name == "PYTHONPATH" or not name.startswith("DDPRUN_PRELOAD")}
    for name in ("PYTHONPATH", "DDPRUN_CHANNEL", "DDPRUN_CHANNEL_INODE", "DDPRUN_SNAPSHOTS"):
        environment.pop(name, None)
        if name in os.environ:
            environment[name] = os.environ[name]
    installed = real_sitecustomize(own_folder)
    with open("/proc/self/comm") as own:
        title = own.read().rstrip("\n")
    write_own("comm", "ddprun-spare")
    with LowPriority():
        libraries, watched, names, changed = load(modules, environment)
        before = FirstSight(environment, versions_of(watched))
        use_huge_pages()
    hidden = hidden_by(names, earlier_folders(), libraries)
    if hidden:
        leave(hidden + " hides a module that would be preloaded: the script imports that one")
    say("ready", str(int(1000 * (time.monotonic() - began))), str(private_memory()))

    request, (output, errors, channel), board, looks = wait_for_orders()
    say("heard")
    arguments, variables = parse_request(request)
    hidden = hidden_by(names, earlier_folders(), libraries)
    now = Sight({os.fsdecode(name): os.fsdecode(value) for name, value in variables},
                versions_now(before, board, looks))
    if board is not None:
        os.close(board)
    why = why_plainly(before, now, hidden)
    say("runs", why)
    take_title(title)
    os.dup2(channel, CONTROL)
    os.close(channel)
    take_output((output, errors))
    if why:
        become(arguments, dict(variables))
    take_environment(variables, changed)
    take_arguments(arguments)
    look_again()
    return installed


if __name__ == "sitecustomize" and "DDPRUN_PRELOAD" in os.environ:
    try:
        _installed = be_spare()
    except BaseException as error:
        # After an error the script must not run here as if it were a worker.
        import traceback

        traceback.print_exc()
        say("unfit", "a spare has failed: " + type(error).__name__ + ": " + str(error))
        os._exit(1)
    if not _installed:
        # The installation has no module of this name, so Python expects this error.
        raise ImportError("no sitecustomize", name="sitecustomize")
