"""Tests of spare interpreters (`--standby N --preload MODULES`).

A spare interpreter is a Python process that has already imported the script's libraries when a worker must be restarted. A
script in a spare must find the same environment as in a fresh interpreter. If a preloaded file has changed, the script must
start in a fresh interpreter instead. No spare may run longer than its job."""

import ctypes
import importlib.util
import json
import mmap
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest
from test_stopping import wait_gone

PATIENCE_S = 30
# Code that records everything that a script can observe about its process, except values that differ between any two processes:
# pids, addresses, and the pipe behind each descriptor.
DUMP = """
import sys
KEYS = sorted(globals())
MODULES = set(sys.modules)
import _thread, gc, json, os, random, signal, stat
FRAMES = sys._getframe().f_back is None if __name__ != "__mp_main__" else True


def kind_of_stream(stream):
    raw = stream.buffer.raw if hasattr(stream.buffer, "raw") else stream.buffer
    return [stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.isatty(),
            stream.seekable(), type(stream.buffer).__name__, raw.name, raw.mode, raw.closefd, stream.fileno()]


def everything():
    spec = globals().get("__spec__")
    return {
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path, "flags": str(sys.flags), "cwd": os.getcwd(),
        "main": {k: str(globals().get(k)) for k in ("__name__", "__file__", "__package__", "__doc__", "__cached__", "__annotations__")},
        "keys": KEYS, "spec": [spec.name, spec.origin] if spec else None, "loader": type(globals().get("__loader__")).__name__,
        "is main": sys.modules["__main__"].__dict__ is globals(), "no frame below": FRAMES,
        "executable": [sys.executable, sys.prefix, sys.base_prefix], "hooks": [str(h) for h in sys.path_hooks[1:0]],
        "environ": {k: v for k, v in os.environ.items() if k not in ("MASTER_PORT",)}, "order": [k for k in os.environ],
        "streams": [kind_of_stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
        "same streams": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__],
        "descriptors": sorted([int(fd), stat.S_IFMT(os.fstat(int(fd)).st_mode), os.get_inheritable(int(fd))]
                              for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)),
        "signals": {n: str(signal.getsignal(n)) for n in (1, 2, 3, 10, 12, 13, 15, 17, 25)},
        "status": [line for line in open("/proc/self/status") if line.startswith(("Sig", "Shd", "Threads", "Umask", "NoNewPrivs", "Cpus_a")) and line[:4] not in ("SigQ", "SigC")],
        "caught": [int(line.split()[1], 16) & 0x7fffffff for line in open("/proc/self/status") if line.startswith("SigCgt")],  # the C library has those above
        "comm": open("/proc/self/comm").read(), "cmdline": open("/proc/self/cmdline").read(),
        "scheduling": [os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0) == os.getpid()],
        "oom": open("/proc/self/oom_score_adj").read(), "umask": os.umask(0o22), "recursion": sys.getrecursionlimit(), "gc": [gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()],
        "switch": sys.getswitchinterval(), "warnings": str(sys.warnoptions), "xoptions": str(sys._xoptions), "encoding": sys.getfilesystemencoding(),
        "random seeded": [random.getstate()[0], random.getstate()[2]], "hash": os.environ.get("PYTHONHASHSEED"),
        "sitecustomize": "sitecustomize" in MODULES, "excepthook": sys.excepthook is sys.__excepthook__, "tracing": [sys.gettrace(), sys.getprofile()],
        "limits": open("/proc/self/limits").read(), "ours": sorted(MODULES & {"ddprun", "traceback", "ctypes"}),
    }
"""
ENDS = """
import time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    print("up", file=sys.stderr)
    while not os.path.exists(GO):
        time.sleep(0.01)
    os._exit(9)
"""


class Script:
    """Runs a script under ddprun. The test decides when its first round ends; the second round writes its observations to a
    file."""

    def __init__(self, ddprun_bin, folder, body="", options=(), module=False, workers=1, spares=1, preload="json,random,multiprocessing", env=None, stdin=subprocess.DEVNULL,
                 head=""):
        self.folder, self.go = folder, folder / "go"
        name = folder / "train.py"
        name.write_text(head + textwrap.dedent(DUMP) + f"GO = {str(self.go)!r}\nFOLDER = {str(folder)!r}\n" + textwrap.dedent(ENDS) + textwrap.dedent(body))
        with_spares = ["--standby", str(spares), "--preload", preload] if spares else []
        command = [ddprun_bin, "--json", "--nproc-per-node", str(workers), "--max-restarts", "1", *with_spares, *options, *(["-m", "train"] if module else ["train.py"]), "a", "b c"]
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN", "PYTHONPATH"))} | {"PYTHON_EXEC": sys.executable} | (env or {})
        self.console, self.errors = folder / "console", folder / "errors"
        self.process = subprocess.Popen(command, cwd=folder, env=variables, stdin=stdin, stdout=self.console.open("wb"), stderr=self.errors.open("wb"))

    def events(self, name):
        lines = [json.loads(line) for line in self.console.read_bytes().split(b"\n")[:-1] if line.startswith(b"{")]
        return [e for e in lines if e.get("event") == name]

    def wait_for(self, what):
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < end and self.process.poll() is None, (self.console.read_text(), self.errors.read_text())
            time.sleep(0.01)

    def await_spares(self, count=1):
        self.wait_for(lambda: len(self.events("standby_waits")) >= count)
        return [e["pid"] for e in self.events("standby_waits")]

    def restart(self):
        self.go.write_text("")
        code = self.process.wait(PATIENCE_S)
        return code

    def started(self):
        return [e["pid"] for e in self.events("worker_started")]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


WRITES = """
with open(os.path.join(FOLDER, "seen." + os.environ["RANK"]), "w") as f:
    json.dump(everything(), f)
"""


def seen(folder, rank=0):
    return json.loads((folder / f"seen.{rank}").read_text())


@pytest.fixture(scope="module")
def real_site(tmp_path_factory):
    """Returns a folder with a sitecustomize.py of the user. Python must run this file, too, although a spare has its own
    sitecustomize.py."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text("import sys\nsys.users = __file__\n")
    return folder


@pytest.mark.parametrize("how", ["script", "module", "to files", "own sitecustomize", "no locale"])
def test_a_spare_looks_like_a_fresh_interpreter(ddprun_bin, tmp_path, real_site, monkeypatch, how):
    found = []
    options = ["-r", "1", "--log-dir", "logs"] if how == "to files" else []
    env = {"PYTHONPATH": f"{real_site}:relative"} if how == "own sitecustomize" else {}
    if how == "no locale":  # in this case Python itself sets LC_CTYPE
        monkeypatch.delenv("LC_ALL", raising=False)
        monkeypatch.delenv("LANG", raising=False)
        monkeypatch.delenv("LC_CTYPE", raising=False)
    folder = tmp_path / "job"
    for spares in (0, 1):
        subprocess.run(["rm", "-rf", folder], check=True)
        folder.mkdir()
        with Script(ddprun_bin, folder, WRITES, options, module=how == "module", spares=spares, env=env) as job:
            pids = job.await_spares() if spares else []
            job.wait_for(lambda: b"up" in job.console.read_bytes() + job.errors.read_bytes())
            assert job.restart() == 0, job.errors.read_text()
            assert [e["standby"] for e in job.events("worker_started")] == [False, spares == 1]
            assert job.started()[1:] == pids or not spares
            assert "starts without its spare" not in job.errors.read_text()
        found.append(seen(folder))
    plain, spare = found
    # Values that differ in each run are removed: the folder of the error file, the pid of the agent with the snapshot memory,
    # and the inode of the channel.
    for one in found:
        assert one["environ"].pop("TORCHELASTIC_ERROR_FILE")
        assert one["environ"].pop("DDPRUN_SNAPSHOTS").startswith("/proc/")
        assert int(one["environ"].pop("DDPRUN_CHANNEL_INODE")) > 0
        assert one["environ"]["DDPRUN_CHANNEL"] == "fd:3" and one["environ"]["DDPRUN_RESTART_CAUSE"]
    assert {k: v for k, v in spare.items() if v != plain[k]} == {k: v for k, v in plain.items() if v != spare[k]}
    assert spare["environ"]["TORCHELASTIC_RESTART_COUNT"] == "1" and spare["is main"]
    # With `python -m`, frames of the module runpy are below the script's frame in every interpreter.
    assert spare["no frame below"] == (how != "module")
    assert "LC_CTYPE" in spare["environ"] or how != "no locale" or sys.flags.utf8_mode
    assert spare["sitecustomize"] or how != "own sitecustomize"  # Debian's Python has a sitecustomize.py as well


def test_channel_children_and_failures_match_a_fresh_interpreter(ddprun_bin, tmp_path):
    helper = pathlib.Path(__file__).resolve().parents[2] / "python"
    body = f"""
    sys.path.append({str(helper)!r})
    import multiprocessing


    def child(queue):
        queue.put([__name__, sys.argv, os.path.basename(sys.modules["__main__"].__file__)])


    def answers(method):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        answer = queue.get()
        process.join()
        return answer


    if __name__ == "__main__":
        import ddprun
        ddprun.step(7)
        print("spawned", answers("spawn"), flush=True)
        raise ValueError("on purpose")
    """
    with Script(ddprun_bin, tmp_path, body) as job:
        pids = job.await_spares()
        assert job.restart() == 1
        assert job.started()[1:] == pids
        assert [e["step"] for e in job.events("progress")] == [7]
        output = job.console.read_text() + job.errors.read_text()
    assert "spawned ['__mp_main__'" in output
    trace = output[output.rindex("Traceback (most recent call last)"):]
    assert "sitecustomize" not in output and "train.py" in trace and "ValueError: on purpose" in trace


def test_a_change_since_the_preload_causes_a_plain_start(ddprun_bin, tmp_path):
    with Script(ddprun_bin, tmp_path, WRITES + "print(type(random).__name__, random.__file__, flush=True)\n") as job:
        job.await_spares()
        # With this file, `import random` in the script no longer finds the preloaded module.
        (tmp_path / "random.py").write_text("def getstate():\n    return [1, 2, 3]\n")
        assert job.restart() == 0, job.errors.read_text()
        assert f"starts without its spare interpreter: {tmp_path}/random.py would be imported instead" in job.errors.read_text()
        assert str(tmp_path / "random.py") in job.console.read_text()


@pytest.fixture
def own_environment(tmp_path):
    """Creates a virtual environment with one installed module. Returns the paths of its Python and of the module's file."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    (packages,) = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    (packages / "installed.py").write_text("")
    return str(tmp_path / "environment" / "bin" / "python"), packages / "installed.py"


def test_all_spares_notice_a_changed_library(ddprun_bin, tmp_path, own_environment):
    python, module = own_environment
    with Script(ddprun_bin, tmp_path, WRITES, workers=3, spares=3, preload="json,installed", env={"PYTHON_EXEC": python}) as job:
        job.await_spares(3)
        module.write_text("new = True\n")
        assert job.restart() == 0, job.errors.read_text()
        for rank in range(3):
            assert f"rank {rank} starts without its spare interpreter: {module} has changed" in job.errors.read_text()
        assert [e["standby"] for e in job.events("worker_started")] == 3 * [False] + 3 * [True]


def test_one_spare_checks_unchanged_files_for_all(ddprun_bin, tmp_path, own_environment):
    python, module = own_environment
    reads = tmp_path / "reads"
    module.write_text(textwrap.dedent(f"""
        import os
        real = os.stat
        def counting(path, *more, **named):
            if path == __file__:
                with open({str(reads)!r}, "a") as file:
                    print(os.getpid(), file=file)
            return real(path, *more, **named)
        os.stat = counting
        """))
    with Script(ddprun_bin, tmp_path, WRITES, workers=3, spares=3, preload="json,installed", env={"PYTHON_EXEC": python}) as job:
        pids = job.await_spares(3)
        # Each spare has read the file once, when it imported the module.
        assert sorted(map(int, reads.read_text().split())) == sorted(pids)
        reads.write_text("")
        assert job.restart() == 0, job.errors.read_text()
        assert "starts without its spare" not in job.errors.read_text()
        assert [e["standby"] for e in job.events("worker_started")] == 3 * [False] + 3 * [True]
    assert len(reads.read_text().split()) == 1
    assert [seen(tmp_path, rank)["environ"]["RANK"] for rank in range(3)] == ["0", "1", "2"]


def test_spares_check_files_if_the_checking_one_is_stopped(ddprun_bin, tmp_path):
    with Script(ddprun_bin, tmp_path, WRITES, workers=3, spares=3) as job:
        first = min(job.await_spares(3))  # the spare that was started first becomes rank 0 and checks the files for all
        os.kill(first, signal.SIGSTOP)
        job.go.write_text("")
        job.wait_for(lambda: (tmp_path / "seen.1").exists() and (tmp_path / "seen.2").exists())
        assert not (tmp_path / "seen.0").exists()  # ranks 1 and 2 did not wait for the suspended spare
        assert job.process.wait(PATIENCE_S) == 0, job.errors.read_text()
        assert f"rank 0 starts without its spare interpreter: the spare interpreter (process {first}) did not answer" in job.errors.read_text()
        assert "rank 1 starts without" not in job.errors.read_text() and "rank 2 starts without" not in job.errors.read_text()


@pytest.fixture
def spare_code(monkeypatch):
    """Provides the functions of a spare, with a socket as its control channel. Yields the module with these functions, and the
    agent's end of the socket."""
    file = pathlib.Path(__file__).resolve().parents[2] / "python" / "ddprun" / "_spare" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("code_of_a_spare", file)
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    agent, spare = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(code, "CONTROL", spare.fileno())
    with agent, spare:
        yield code, agent


def test_a_spare_uses_only_scans_of_the_same_files(tmp_path, spare_code, monkeypatch):
    code, agent = spare_code
    file = tmp_path / "module.py"
    file.write_text("old")
    before = code.InitialObservation({}, code.versions_of([str(file)]))
    with tempfile.TemporaryFile() as board:
        assert code.current_versions(before, board.fileno(), checks_files=True) == before.files
        file.write_text("newer")
        agent.send(b"seen")
        # The message means that the other spare has published the result of its file check. This result must be used without
        # another check.
        assert code.current_versions(before, board.fileno(), checks_files=False) is before.files
        other = code.InitialObservation({}, {**before.files, "more": None})
        agent.send(b"seen")
        # The other spare checked fewer files, so its result must not be used.
        assert code.current_versions(other, board.fileno(), checks_files=False) != other.files
    with tempfile.TemporaryFile() as board:
        assert code.current_versions(before, board.fileno(), checks_files=True) != before.files
        assert os.pread(board.fileno(), 1, 0) == b""
        agent.send(b"seen")
        assert code.current_versions(before, board.fileno(), checks_files=False) != before.files
        monkeypatch.setattr(code, "SCAN_TIMEOUT_S", 0.01)
        # No spare has published a result.
        assert code.current_versions(before, board.fileno(), checks_files=False) != before.files
    # If there is no shared result, the spare must check the files itself.
    assert code.current_versions(before, None, checks_files=True) != before.files
    again = code.InitialObservation({}, code.versions_of([str(file)]))
    with open(os.devnull, "rb") as unwritable:
        assert code.current_versions(again, unwritable.fileno(), checks_files=True) == again.files


SMAPS = """\
10000000-10400000 r-xp 00000000 08:01 42   /lib/a library.so
Rss:                4096 kB
Anonymous:          4096 kB
VmFlags: rd ex mr
10800000-10c00000 rw-p 00800000 08:01 42   /lib/a library.so
Rss:                4096 kB
Anonymous:          4096 kB
20000000-20800000 rw-p 00000000 00:00 0    [heap]
Rss:                8192 kB
Anonymous:          7168 kB
30000000-30800000 rw-p 00000000 00:00 0
Rss:                8192 kB
Anonymous:          7164 kB
38000000-38200000 rw-p 00000000 00:00 0
Rss:                2048 kB
Anonymous:          2048 kB
40000000-40200000 rw-s 00000000 00:01 7    /dev/shm/shared
Rss:                2048 kB
Anonymous:          2048 kB
50000000-50200000 rw-p 00000000 00:00 0    [stack]
Rss:                2048 kB
Anonymous:          2048 kB
"""


def test_only_mostly_used_data_goes_to_huge_pages(spare_code):
    code, _ = spare_code
    mappings = code.mappings_of(SMAPS.splitlines(keepends=True))
    assert [(m.begin, m.size) for m in mappings][:2] == [(0x10000000, 0x400000), (0x10800000, 0x400000)]
    assert [hex(m.begin) for m in mappings if code.for_huge_pages(m)] == ["0x20000000", "0x38000000"]


def of_mapping(pid, address, what):
    """Returns the field `what`, in kB, of the memory mapping that contains `address`."""
    inside = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            begin, end = (int(text, 16) for text in words[0].split("-"))
            inside = begin <= address < end
        elif inside and words[0] == what + ":":
            return int(words[1])
    raise LookupError(hex(address))


def huge_pages_on_request():
    """Requests huge pages for a mapping of 16 MiB, and returns how many kB the kernel has moved into them. The request needs
    Linux 6.1, huge pages of 2 MiB, and enough contiguous free memory."""
    with mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(16 << 20))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(16 << 20), 25)
        return of_mapping(os.getpid(), address, "AnonHugePages")


def huge_pages_are_chosen():
    choice = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return choice.exists() and "[never]" not in choice.read_text()


def test_spare_data_in_huge_pages_is_unchanged(ddprun_bin, tmp_path, own_environment):
    python, module = own_environment
    module.write_text(textwrap.dedent(f"""
        import ctypes, hashlib, random
        data = bytearray(random.Random(2).randbytes(16 << 20))
        names = [str(n) for n in range(100_000)]
        sums = lambda: [hashlib.sha256(d).hexdigest() for d in (data, " ".join(names).encode())]
        before = sums()
        with open({str(tmp_path / "address")!r}, "w") as address:
            print(ctypes.addressof(ctypes.c_char.from_buffer(data)), file=address)
        """))
    body = "import installed\nprint('unchanged', installed.sums() == installed.before, flush=True)\n"
    with Script(ddprun_bin, tmp_path, WRITES + body, preload="json,installed", env={"PYTHON_EXEC": python}) as job:
        (pid,) = job.await_spares()
        in_huge_pages = of_mapping(pid, int((tmp_path / "address").read_text()), "AnonHugePages")
        if not huge_pages_are_chosen():
            assert in_huge_pages == 0
        elif huge_pages_on_request() >= 12 << 10:
            assert in_huge_pages >= 2 << 10  # some of the data is enough, because contiguous memory may be scarce
        assert job.restart() == 0, job.errors.read_text()
        assert job.started()[1:] == [pid]
        assert "unchanged True" in job.console.read_text()


@pytest.mark.parametrize("preload, why", [("train_helper", "No module named 'train_helper'"), ("needless", "cannot preload needless")])
def test_an_invalid_preload_is_reported_once(ddprun_bin, tmp_path, preload, why):
    (tmp_path / "train_helper.py").write_text("")  # this module is in the script's folder, which a spare cannot import from
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "needless.py").write_text("")
    with Script(ddprun_bin, tmp_path, WRITES, preload=preload, env={"PYTHONPATH": str(tmp_path / "path")}) as job:
        job.wait_for(lambda: job.events("standby_ended"))
        assert why in job.events("standby_ended")[0]["message"]
        assert job.restart() == 0, job.errors.read_text()
        assert len(job.events("standby_ended")) == 1 and [e["standby"] for e in job.events("worker_started")] == [False, False]


def test_preloaded_libraries_have_the_usual_threads(ddprun_bin, tmp_path):
    """A spare imports modules at the lowest scheduling priority, and new threads inherit it. The threads that the libraries
    start must still get the usual priority."""
    body = """
import numpy
tasks = sorted((os.sched_getscheduler(int(t)), open(f"/proc/self/task/{t}/comm").read()) for t in os.listdir("/proc/self/task"))
with open(os.path.join(FOLDER, "seen." + os.environ["RANK"]), "w") as f:
    json.dump(tasks, f)
"""
    found = []
    for spares in (0, 1):
        folder = tmp_path / str(spares)
        folder.mkdir()
        with Script(ddprun_bin, folder, body, spares=spares, preload="numpy", env={"OPENBLAS_NUM_THREADS": "3"}) as job:
            if spares:
                job.await_spares()
            job.wait_for(lambda: b"up" in job.console.read_bytes() + job.errors.read_bytes())
            assert job.restart() == 0, job.errors.read_text()
            assert [e["standby"] for e in job.events("worker_started")] == [False, spares == 1]
        found.append(seen(folder))
    assert found[0] == found[1] and len(found[0]) > 1


def test_an_empty_pythonpath_is_not_a_change(ddprun_bin, tmp_path):
    with Script(ddprun_bin, tmp_path, WRITES, env={"PYTHONPATH": ""}) as job:
        job.await_spares()
        assert job.restart() == 0, job.errors.read_text()
        assert [e["standby"] for e in job.events("worker_started")] == [False, True]
    assert seen(tmp_path)["environ"]["PYTHONPATH"] == "" and "" not in seen(tmp_path)["path"][1:]


def test_killed_waiting_spares_are_not_a_failure(ddprun_bin, tmp_path):
    with Script(ddprun_bin, tmp_path, WRITES, workers=2, spares=2) as job:
        first, second = job.await_spares(2)
        os.kill(first, signal.SIGKILL)
        job.wait_for(lambda: job.events("standby_ended"))
        assert job.restart() == 0, job.errors.read_text()
        assert sorted(e["standby"] for e in job.events("worker_started")) == [False, False, False, True]
        assert second in job.started()
        assert len(job.events("round_failed")) == 1
    assert not wait_gone([second], PATIENCE_S)


@pytest.mark.parametrize("victim", ["agent", "guardian"])
def test_spares_do_not_outlive_their_job(ddprun_bin, tmp_path, victim):
    with Script(ddprun_bin, tmp_path, spares=2, workers=2) as job:
        spares = job.await_spares(2)
        guardian = int(pathlib.Path(f"/proc/{spares[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(job.process.pid if victim == "agent" else guardian, signal.SIGKILL)
        job.process.wait(PATIENCE_S)
        assert not wait_gone(spares + job.started() + [guardian], PATIENCE_S)


def python_without_hook(kind, folder):
    """Returns a Python that does not run the sitecustomize.py of PYTHONPATH."""
    if kind == "isolated":
        source = folder / "python.c"
        source.write_text(f"""#include <string.h>
#include <unistd.h>
int main(int count, char** words) {{
  char* with[count + 2];
  with[0] = "{sys.executable}";
  with[1] = "-I";
  memcpy(with + 2, words + 1, count * sizeof *words);
  execv(with[0], with);
  return 1;
}}
""")
        subprocess.run(["cc", "-o", folder / "python", source], check=True)
        return folder / "python"
    library = folder / f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    library.mkdir(parents=True)
    (folder / "venv/bin").mkdir()
    (folder / "venv/bin/python").symlink_to(sys.executable)
    (folder / "venv/pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    (folder / "other").mkdir()
    (folder / "other/sitecustomize.py").write_text("")
    (library / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(folder / 'other')!r})\n")
    return folder / "venv/bin/python"


@pytest.mark.parametrize("kind", [pytest.param("isolated", marks=pytest.mark.skipif(not shutil.which("cc"), reason="needs cc")), "another sitecustomize"])
def test_a_python_without_the_hook_runs_no_script(ddprun_bin, tmp_path, kind):
    python = python_without_hook(kind, tmp_path)
    ran = tmp_path / "ran"
    with Script(ddprun_bin, tmp_path, WRITES, env={"PYTHON_EXEC": str(python)}, head=f"import os; open({str(ran)!r}, 'a').write(f'{{os.getpid()}}\\n')\n") as job:
        job.wait_for(lambda: job.events("standby_ended"))
        assert job.restart() == 0, job.errors.read_text()
        (ended,) = job.events("standby_ended")
        assert "does not run the sitecustomize.py in PYTHONPATH" in ended["message"]
        assert [e["standby"] for e in job.events("worker_started")] == [False, False]
        assert [int(pid) for pid in ran.read_text().split()] == job.started()


def test_a_stopped_spare_is_replaced_by_a_fresh_interpreter(ddprun_bin, tmp_path):
    with Script(ddprun_bin, tmp_path, WRITES) as job:
        (spare,) = job.await_spares()
        os.kill(spare, signal.SIGSTOP)
        assert job.restart() == 0, job.errors.read_text()
        assert [e["standby"] for e in job.events("worker_started")] == [False, True, False]
        assert job.errors.read_text().count(f"rank 0 starts without its spare interpreter: the spare interpreter (process {spare}) did not answer") == 1
        assert len(job.events("round_failed")) == 1 and not wait_gone([spare], PATIENCE_S)
    assert seen(tmp_path)["environ"]["TORCHELASTIC_RESTART_COUNT"] == "1"
