"""Makes a Python interpreter a spare: `ddprun --standby N --preload MODULES script.py`.

The problem. When a script is restarted, nearly all of the time until its first step is spent in `import torch`, and in the
`import torch._dynamo` of DDP(). A spare is an interpreter that has imported both and waits. After a failure it becomes a
worker. The script must then behave as in a fresh interpreter.

How it goes wrong:
- A fork of a process with torch is safe only with one thread and without CUDA. All children also share hash seed and random
  state.
- A program that waits, and then runs the script through runpy, leaves its frames below the frames of the script. It must also
  imitate __main__, the exit after Ctrl-C and the traceback.
- A library or an environment variable changes after the import. The script then runs with modules that a fresh interpreter
  would not load.
- Some invocations of Python, such as `python -I`, do not run this file. They would run the script immediately, as a worker
  without a rank.

The idea. ddprun starts a spare with the command of a worker, and puts this folder first in PYTHONPATH. Python runs
sitecustomize after its own setup and before it opens the script. In this file the spare imports the modules and waits. When it
becomes a worker, it receives environment, arguments, output and channel of that worker. Then this file returns, and Python
itself continues with the script:

    python -u -c PLACEHOLDER python -u train.py   Python runs this file, which calls exec with the rest of the command
    python -u train.py                            this file again: imports torch, sends "ready", waits
    a request from the agent                      sends "heard", checks for changes, sends "runs", returns
                                                  Python runs train.py as the worker

PLACEHOLDER is a program in launcher/workers/worker_environment.cpp. It runs only if Python does not run this file, and reports
that. If an environment variable or a file has changed, the spare calls exec with the worker's command. The process id then
stays the same, and the interpreter is fresh.

The cost. With torch 2.11 a spare uses 339 MB of private memory. The exec after PLACEHOLDER takes 20 ms. At the takeover some
1,800 files of torch must be checked. When several spares become workers together, one of them checks the files for all. It
shares the result through a memfd, the board.

Rejected designs. inotify in place of the file check: closing the watches takes 10 to 20 ms. An import in a low-priority thread:
thread-local settings would apply to the wrong thread. MADV_DONTNEED on pages of libraries, to end the process faster: another
thread can lose data silently. docs/internals/decisions/launcher/spare-interpreters.md has the measurements.

launcher/workers/ contains the agent's side. This file needs only Python 3.8 and the standard library, and no module of ours
imports it. It is one long file for two reasons. Each module that it imported would already be in sys.modules when the script
starts. Each further file would also take time to read."""

import os
import sys
import time

CONTROL = 3  # the socket to the agent; when the spare becomes a worker, the worker's channel gets this descriptor
SCAN_TIMEOUT_S = 1.0  # maximum time in seconds to wait for another spare that checks the files
WORKER_VARIABLES = {"LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE",
                    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
WORKER_PREFIXES = ("TORCHELASTIC_", "DDPRUN_")


# ---- decisions (pure functions) ----

def of_worker(name):
    """Returns True if the value of this environment variable is different for each worker, or each time the worker is
    started."""
    return name in WORKER_VARIABLES or name.startswith(WORKER_PREFIXES)


def first_difference(before, now):
    """Returns the first key, in sorted order, whose values differ between two dictionaries. Returns None if they are equal."""
    if before == now:
        return None
    for key in sorted(set(before) | set(now)):
        if before.get(key) != now.get(key):
            return key
    return None


def is_below(path, folders):
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def foreign_module(places, folders):
    """Returns the first of these modules that has a file or folder outside `folders`, or None. `places` is {module: its files
    or folders}."""
    for name in sorted(places):
        if not all(is_below(place, folders) for place in places[name]):
            return name
    return None


def reason_for_plain_start(before, now, hidden):
    """Returns why the script needs a fresh interpreter, or an empty string if the spare is equivalent to one. `before` is the
    Observation that the spare made after its imports. `now` is the present Observation."""
    variable = first_difference({k: v for k, v in before.environment.items() if not of_worker(k)},
                                {k: v for k, v in now.environment.items() if not of_worker(k)})
    if variable:
        return "the environment variable " + variable + " has changed"
    file = first_difference(before.files, now.files)
    if file:
        return file + " has changed"
    if hidden:
        return hidden + " would be imported instead of the preloaded module"
    return ""


class Observation:
    """The data that must not change from the end of the spare's imports until it becomes a worker: the environment, and {file:
    its version}."""

    def __init__(self, environment, files):
        self.environment = environment
        self.files = files


class InitialObservation(Observation):
    """The Observation that a spare makes after its imports. Two spares have the same `text` if they loaded the same versions of
    the same files."""

    def __init__(self, environment, files):
        Observation.__init__(self, environment, files)
        self.text = repr(sorted(files.items())).encode("ascii", "backslashreplace")


# ---- observations of the system ----

def versions_of(files):
    """Returns {file: its version}. The start of new workers waits for this call. torch has 1,800 files, so the loop calls only
    os.stat."""
    read_status, versions = os.stat, {}
    for file in files:
        try:
            status = read_status(file)
        except OSError:
            versions[file] = None
        else:
            versions[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return versions


def library_folders():
    """Returns the folders of the standard library and of installed packages. A virtual environment can be a symbolic link, so
    the real paths of the folders are returned, too."""
    import site
    import sysconfig

    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return sorted({path for folder in folders for path in (folder, os.path.realpath(folder))})


def places_of(names):
    """Returns {module: its file, or its folders if it has no file}. Modules that are built in or created by code are omitted.
    """
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
    """Returns the files that must not change while the spare waits: the interpreter, the preloaded modules, and all files that
    can add folders to sys.path."""
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
    """Returns the folders that a fresh interpreter searches before all others. These are the script's folder or the working
    directory, and then PYTHONPATH."""
    script = sys.argv[0] if sys.argv and sys.argv[0] not in ("-m", "") else ""
    if not script:
        folder = os.getcwd()
    elif os.path.isdir(script):
        folder = script
    else:
        folder = os.path.dirname(os.path.realpath(script))
    return [folder] + [path or "." for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)]


def hidden_by(names, folders, libraries):
    """Returns the first path in these folders that Python would import in place of a preloaded module, or an empty string.
    `names` is the result of top_level()."""
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
    """Returns {top-level name: the real path of its file or folder}."""
    found = {}
    for name in {name.partition(".")[0] for name in names}:
        place = os.path.realpath(places[name][0]) if places.get(name) else ""
        found[name] = os.path.dirname(place) if os.path.basename(place).startswith("__init__.") else place
    return found


def private_memory():
    """Returns the bytes of memory that no other process shares, or 0 if the kernel does not report them."""
    try:
        with open("/proc/self/smaps_rollup") as rollup:
            return 1024 * sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    except (OSError, ValueError):
        return 0


# ---- memory that the kernel frees quickly ----

class Mapping:
    """One memory mapping of a process: its size, and the number of bytes of its anonymous memory that are in RAM."""

    def __init__(self, begin, end, rights, path):
        self.begin, self.size, self.rights, self.path = begin, end - begin, rights, path
        self.anonymous = 0


def mappings_of(smaps):
    """Returns the mappings that the lines of /proc/PID/smaps describe."""
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
    """Returns True for a mapping of the program's data if at least 7/8 of it are in use. With huge pages, the unused part would
    use RAM, too."""
    return mapping.rights == "rw-p" and mapping.path in ("", "[heap]") and 8 * mapping.anonymous >= 7 * mapping.size


def huge_pages_are_allowed():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as choice:
            return "[never]" not in choice.read()
    except OSError:
        return False


def use_huge_pages():
    """Moves data into pages of 2 MB. When the process is killed, the kernel frees such pages faster, and the next worker cannot
    start before they are free. Other threads may write to the data during the move. If the move fails, the memory stays in
    small pages."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None or not huge_pages_are_allowed():
        # torch imports ctypes, so without ctypes there is little data to move. If this file imported ctypes itself, the script
        # could detect it.
        return
    try:
        advise = ctypes.CDLL(None).madvise
        with open("/proc/self/smaps", encoding="utf-8", errors="replace", newline="\n") as smaps:
            mappings = mappings_of(smaps)
        for mapping in filter(for_huge_pages, mappings):
            # The number 25 is MADV_COLLAPSE. Linux before 6.1 refuses it, and the memory then stays in small pages.
            advise(ctypes.c_void_p(mapping.begin), ctypes.c_size_t(mapping.size), 25)
    except Exception:  # huge pages are optional, and an audit hook can raise any error
        pass


# ---- low priority ----

def can_restore_priority():
    """Returns True if a thread of this process can enter the scheduler's idle class and leave it again. A thread that may not
    leave can never run normally again, so a separate thread tries this."""
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


def write_proc_self(file, text):
    """Writes text to /proc/self/FILE. Returns the error, or None."""
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
        return ["0"]  # 0 means the calling thread


def set_title(title):
    """Sets the name of this thread and of the threads that libraries have started, as shown by ps and top."""
    write_proc_self("comm", title)
    for thread in own_threads():
        write_proc_self("task/" + thread + "/comm", title)


class LowPriority:
    """A context in which other processes get the CPU first. If this process can leave the scheduler's idle class again, it
    enters that class. Otherwise it lowers the weight of its session (autogroup), if the kernel supports that."""

    def __enter__(self):
        self.idle = os.sched_getscheduler(0) == os.SCHED_OTHER and can_restore_priority()
        if self.idle:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            write_proc_self("autogroup", "19")

    def __exit__(self, *unused):
        if self.idle:
            for thread in own_threads():  # threads that libraries started have inherited SCHED_IDLE
                try:
                    os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
                except OSError:
                    pass  # the thread has ended in the meantime
            return
        for _ in range(20):  # the kernel accepts only one change of an autogroup in 0.1 s, over all sessions
            if not isinstance(write_proc_self("autogroup", "0"), BlockingIOError):
                return
            time.sleep(0.05)


# ---- the control socket ----

def send_lines(*lines):
    try:
        os.write(CONTROL, "\n".join(line.replace("\n", " ")[:1000] for line in lines).encode("utf-8", "replace"))
    except OSError:
        pass  # the agent has ended, which the next read detects


def wait_for_request():
    """Waits for a request of the agent. Exits if the agent has ended.

    Returns (request, descriptors of stdout, stderr and channel, descriptor of the board or None, checks_files). The board is a
    memfd in which spares share the result of the file check. `checks_files` is True if this spare must check its files itself,
    and False if another spare checks them for all.
    """
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
        os._exit(1 if packet else 0)  # an empty packet means that the agent has ended, which is not an error
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


def wait_for_scan():
    """Waits until another spare has checked the files. That spare may have been killed or stopped, so the wait has a time
    limit."""
    import _socket

    control = _socket.socket(fileno=CONTROL)
    try:
        control.settimeout(SCAN_TIMEOUT_S)
        control.recv(16)
        control.settimeout(None)
    except OSError:
        pass
    finally:
        control.detach()


def read_scan(board, most):
    try:
        return os.pread(board, most, 0)
    except OSError:
        return b""  # the caller then checks the files itself


def publish_scan(board, text):
    try:
        os.pwrite(board, text, 0)
    except OSError:
        pass  # without the text, each spare checks the files itself


def current_versions(before, board, checks_files):
    """Returns the present versions of before.files.

    Spares that become workers together nearly always depend on the same files, so one of them checks its files for all. If they
    are unchanged, this spare writes their names and versions (`text`) to the board, a memfd that the spares share. The other
    spares compare this text with their own. A spare with the same text does not check its files. If `board` is None, each spare
    checks its own files.
    """
    if not checks_files:
        wait_for_scan()
        if read_scan(board, len(before.text) + 1) == before.text:
            return before.files
    now = versions_of(before.files)
    if checks_files and board is not None and now == before.files:
        publish_scan(board, before.text)
    return now


def parse_request(request):
    """Returns (arguments with the interpreter first, environment as a list of (name, value))."""
    texts = request.split(b"\0")[:-1]
    count = int(texts[0])
    arguments, variables = texts[2:2 + count], texts[2 + count:]
    return arguments, [tuple(variable.split(b"=", 1)) for variable in variables]


# ---- start of a spare, and its change to a worker ----

def given_environment():
    """Returns the environment with which this process was started, in the original order. os.environ can be different, because
    Python and .pth files may have changed it."""
    try:
        with open("/proc/self/environ", "rb") as own:
            variables = [variable.split(b"=", 1) for variable in own.read().split(b"\0") if b"=" in variable]
    except OSError:  # a process with extra privileges cannot read its own /proc entry
        variables = os.environb.items()
    return {os.fsdecode(name): os.fsdecode(value) for name, value in variables}


def exec_program(arguments, environment):
    """Replaces this process by another program. Python ignores SIGPIPE and SIGXFSZ. The new program would ignore them, too, so
    the default actions are restored first."""
    import _signal

    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.execve(arguments[0], arguments, environment)


def set_output(fds):
    """Duplicates the new stdout and stderr to descriptors 1 and 2, and initializes sys.stdout and sys.stderr for them."""
    for number, fd in zip((1, 2), fds):
        os.dup2(fd, number)
        os.close(fd)
    for stream, number in ((sys.__stdout__, 1), (sys.__stderr__, 2)):
        before = stream.buffer  # unbuffered (a FileIO), since Python was started with -u
        raw = type(before)(number, "wb", closefd=False)
        raw.name = before.name
        stream.__init__(raw, stream.encoding, stream.errors, "\n", stream.line_buffering, stream.write_through)


def set_environment(variables, changed):
    os.environ.clear()
    for name, value in variables:
        os.environ[os.fsdecode(name)] = os.fsdecode(value)
    for name, value in changed.items():  # apply the changes that the preloaded modules made to the environment
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def set_arguments(arguments):
    arguments = [os.fsdecode(argument) for argument in arguments]
    sys.argv[1:] = arguments[len(arguments) - len(sys.argv) + 1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = arguments


def invalidate_finders():
    """Clears the caches of importers. A cache does not contain files that were created after it was filled."""
    for finder in list(sys.path_importer_cache.values()):
        if hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def real_sitecustomize(own_folder):
    """Imports the sitecustomize module of the Python installation, as Python does without this file. Returns True if the
    installation has such a module."""
    sys.path[:] = [path for path in sys.path if path != own_folder]
    sys.path_importer_cache.pop(own_folder, None)
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401: not this file, which is no longer in sys.path
        return True
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours
        return False


def load(modules, environment):
    """Imports the modules. Returns the folders of libraries, the files to check, {top-level name: path}, and the changes that
    the imports made to the environment."""
    import importlib

    before = set(sys.modules)
    libraries = library_folders()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            exit_unfit("cannot preload " + name + ": " + type(error).__name__ + ": " + str(error))
    if "ddprun" in sys.modules:
        exit_unfit("cannot preload ddprun: only a worker with a rank can import it")
    new = set(sys.modules) - before
    places = places_of(new)
    foreign = foreign_module(places, libraries)
    if foreign:
        exit_unfit("cannot preload " + foreign + ", which is in " + places[foreign][0] +
              ": only installed packages and the standard library can be preloaded")
    changed = {name: os.environ.get(name) for name in set(os.environ) | set(environment)
               if os.environ.get(name) != environment.get(name)}
    return libraries, watched_files(places, libraries), top_level(new, places), changed


def exit_unfit(why):
    send_lines("unfit", why)
    os._exit(0)


def run_spare():
    if sys.argv[0] == "-c":  # the arguments of PLACEHOLDER are the worker's command
        exec_program(sys.argv[1:], given_environment())
    started = time.monotonic()
    given = given_environment()
    own_folder = os.path.dirname(os.path.abspath(__file__))
    modules = [name for name in os.environ.pop("DDPRUN_PRELOAD").split(",") if name]
    path = os.environ["PYTHONPATH"].split(os.pathsep, 1)  # its first entry is this folder
    if len(path) > 1:
        os.environ["PYTHONPATH"] = path[1]
    elif os.environ.pop("DDPRUN_PRELOAD_EMPTY_PATH", None):
        os.environ["PYTHONPATH"] = ""
    else:
        del os.environ["PYTHONPATH"]
    for name in ("DDPRUN_CHANNEL", "DDPRUN_CHANNEL_INODE", "DDPRUN_SNAPSHOTS"):  # these variables are for workers only
        os.environ.pop(name, None)
    environment = {name: value for name, value in given.items() if name == "PYTHONPATH" or not name.startswith("DDPRUN_PRELOAD")}
    for name in ("PYTHONPATH", "DDPRUN_CHANNEL", "DDPRUN_CHANNEL_INODE", "DDPRUN_SNAPSHOTS"):
        environment.pop(name, None)
        if name in os.environ:
            environment[name] = os.environ[name]
    installed = real_sitecustomize(own_folder)
    with open("/proc/self/comm") as own:
        title = own.read().rstrip("\n")
    write_proc_self("comm", "ddprun-spare")
    with LowPriority():
        libraries, watched, names, changed = load(modules, environment)
        before = InitialObservation(environment, versions_of(watched))
        use_huge_pages()
    hidden = hidden_by(names, earlier_folders(), libraries)
    if hidden:
        exit_unfit(hidden + " hides a module to preload: the script would import this file instead")
    send_lines("ready", str(int(1000 * (time.monotonic() - started))), str(private_memory()))

    request, (output, errors, channel), board, checks_files = wait_for_request()
    send_lines("heard")
    arguments, variables = parse_request(request)
    hidden = hidden_by(names, earlier_folders(), libraries)
    now = Observation({os.fsdecode(name): os.fsdecode(value) for name, value in variables},
                current_versions(before, board, checks_files))
    if board is not None:
        os.close(board)
    why = reason_for_plain_start(before, now, hidden)
    send_lines("runs", why)
    set_title(title)
    os.dup2(channel, CONTROL)
    os.close(channel)
    set_output((output, errors))
    if why:
        exec_program(arguments, dict(variables))
    set_environment(variables, changed)
    set_arguments(arguments)
    invalidate_finders()
    return installed


if __name__ == "sitecustomize" and "DDPRUN_PRELOAD" in os.environ:
    try:
        _installed = run_spare()
    except BaseException as error:
        # The process must exit after an error. If it did not, Python would run the script in this process, without a rank.
        import traceback

        traceback.print_exc()
        send_lines("unfit", "the spare interpreter failed: " + type(error).__name__ + ": " + str(error))
        os._exit(1)
    if not _installed:
        # Python expects and ignores this error. It means that the installation has no sitecustomize module.
        raise ImportError("no sitecustomize", name="sitecustomize")
