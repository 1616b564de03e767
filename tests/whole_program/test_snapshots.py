"""ddprun.snapshot() and ddprun.restore(): a script that dies at any moment goes on from the newest step that all ranks have, with the losses of a run that
nobody disturbed; a copy that is torn, of another shape, or too large for the memory is not taken, and the job goes on."""

import pathlib
import random
import re
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/whole_program/reference/programs"
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def policy(tmp_path):
    """A death in the first second is no crash loop here."""
    (tmp_path / "policy.json").write_text('{"pause": {"instant_s": 0}}')
    return ["--restart-policy", tmp_path / "policy.json"]


@pytest.fixture
def job(ddprun_bin, run, tmp_path):
    def go(body: str, *options: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess:
        (tmp_path / "train.py").write_text("import ddprun, os, sys\n" + body)
        return run([ddprun_bin, "--standalone", "--log-dir", "logs", *options, "train.py"], timeout=timeout, **{**ENV, **env})

    return go


# ---- kills ----

# Two ranks that add up a number of each in every step; a megabyte of state, random numbers of their own.
LOCKSTEP = """
import ctypes, hashlib, random, signal, socket, struct
steps, kills, seed, out = int(os.environ["STEPS"]), int(os.environ["KILLS"]), int(os.environ["SEED"]), os.environ["OUT"]

def die_after(seconds):
    libc = ctypes.CDLL(None, use_errno=True)
    event, timer = (ctypes.c_int * 16)(), ctypes.c_void_p()
    event[2] = 9
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, max(1, int(seconds * 1e9))), None) == 0

path = "%s.socket%d" % (out, ddprun.restart)
if ddprun.rank == 0:
    server = socket.socket(socket.AF_UNIX); server.bind(path + "~"); server.listen(); os.rename(path + "~", path)
    other = server.accept()[0]
else:
    other = None
    while other is None:
        try:
            other = socket.socket(socket.AF_UNIX); other.connect(path)
        except OSError:
            other = None

random.seed(ddprun.rank)
state = {"step": 0, "sum": 0.0, "bytes": bytearray(1 << 20)}
state = ddprun.restore() or state
chance = random.Random(1000 * seed + ddprun.restart)
victim, delay = chance.randrange(2), chance.random() * 0.02
done = state["step"]
with open("%s.%d" % (out, ddprun.rank), "a") as log:
    while state["step"] < steps or ddprun.restart < kills:
        n = state["step"] = state["step"] + 1
        if n == done + 1 and ddprun.restart < kills and ddprun.rank == victim:
            die_after(delay)
        own = random.random()
        try:
            other.sendall(struct.pack("d", own))
            theirs = other.recv(8, socket.MSG_WAITALL)
        except OSError:
            theirs = b""
        if len(theirs) < 8:
            signal.pause()  # it died: the agent ends this one
        state["sum"] += own + struct.unpack("d", theirs)[0]
        state["bytes"][n * 4099 % (1 << 20)] = n % 251
        log.write("%d %s\\n" % (n, hashlib.sha1(state["bytes"] + struct.pack("d", state["sum"])).hexdigest())); log.flush()
        assert ddprun.snapshot(state, step=n)
"""


def losses(out: pathlib.Path) -> dict[int, dict[int, set[str]]]:
    """By rank and step: the lines that were written, more than one where a step was done again. A line that was cut off is none."""
    found: dict[int, dict[int, set[str]]] = {0: {}, 1: {}}
    for rank, steps in found.items():
        for line in out.with_name(f"{out.name}.{rank}").read_text().split("\n")[:-1]:
            step, value = line.split(" ")
            steps.setdefault(int(step), set()).add(value)
    return found


def newest(out: pathlib.Path) -> int:
    """The step that any rank has come to. A rank that was lost in the last kill may have been one ahead of where all went on."""
    return max(max(steps) for steps in losses(out).values())


def check_same(disturbed: pathlib.Path, undisturbed: pathlib.Path, at_least: int) -> None:
    got, expected = losses(disturbed), losses(undisturbed)
    for rank in (0, 1):
        assert len(got[rank]) >= at_least and sorted(got[rank]) == list(range(1, len(got[rank]) + 1))
        assert got[rank] == {step: expected[rank][step] for step in got[rank]}


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.long)])
def test_killed_at_any_moment_it_loses_no_step(job, policy, tmp_path, kills):
    seed = random.randrange(1000000)
    env = {"SEED": str(seed), "STEPS": "50"}
    done = job(LOCKSTEP, "--nproc-per-node", "2", "--max-restarts", kills, *policy, timeout=20 + 3 * kills, KILLS=str(kills), OUT=str(tmp_path / "out"), **env)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    assert done.stderr.count("signal 9 (SIGKILL)") == kills
    last = newest(tmp_path / "out")
    assert job(LOCKSTEP, "--nproc-per-node", "2", KILLS="0", OUT=str(tmp_path / "expected"), SEED="0", STEPS=str(last)).returncode == 0
    check_same(tmp_path / "out", tmp_path / "expected", 50)


@pytest.mark.needs_torch_python
@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_ddp_script_has_the_losses_of_one_that_was_not(ddprun_bin, run, policy, tmp_path, kills):
    seed = random.randrange(1000000)

    def train(kills: int, steps: int, out: str) -> subprocess.CompletedProcess:
        return run([ddprun_bin, "--standalone", "--log-dir", "logs", "--nproc-per-node", "2", "--max-restarts", kills, *policy,
                    PROGRAMS / "snapshots_ddp.py", steps, kills, seed, tmp_path / out], timeout=120 + 30 * kills, **ENV)

    done = train(kills, 30, "out")
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    # Where Gloo tells the survivor before the agent hears of the death, the survivor is the first to fail.
    assert len(re.findall(r"^ddprun: restart \d+ of", done.stderr, re.M)) == kills and "signal 9 (SIGKILL)" in done.stderr
    begins = [int(n) for n in re.findall(r"^begins after (\d+)$", done.stdout, re.M)]
    assert begins[::2] == begins[1::2] == sorted(begins[::2]) and len(begins) == 2 * (kills + 1)
    last = newest(tmp_path / "out")
    assert train(0, last, "expected").returncode == 0
    check_same(tmp_path / "out", tmp_path / "expected", 30)


# ---- what is restored ----

# Both ranks get here before one of them dies.
AGAIN = """
if ddprun.restart == 0:
    open("done.%d" % ddprun.rank, "w").close()
    while not os.path.exists("done.%d" % (1 - ddprun.rank)):
        pass
    os._exit(3)
"""


def test_the_state_and_the_random_numbers_go_on(job):
    done = job("import random\nkept = ddprun.restore()\nprint('kept', kept and kept['step'], flush=True)\n"
               "if kept is None:\n    random.seed(7); random.random()\n    ddprun.step(12)\n    assert ddprun.snapshot({'step': 12})\n"
               "print('next', random.random(), flush=True)" + AGAIN, "--max-restarts", "1", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^(?:kept|next) .*$", done.stdout, re.M)
    chance = random.Random(7)
    chance.random()
    assert sorted(said) == ["kept 12"] * 2 + ["kept None"] * 2 + [f"next {chance.random()}"] * 4
    assert len(re.findall(r"(?m)^ddprun: snapshots take 2 x ", done.stderr)) == 1  # the failure may quote it


def test_the_newest_step_that_all_ranks_have(job):
    """Rank 1 has not taken the last one. Nobody has told a step, so snapshots are counted."""
    done = job("kept = ddprun.restore()\nprint('kept', kept, flush=True)\n"
               "if kept is None:\n    for n in range(1, 6 - ddprun.rank):\n        ddprun.snapshot({'n': n})\n" + AGAIN,
               "--max-restarts", "1", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^kept (.*)$", done.stdout, re.M).count("{'n': 4}") == 2


def test_a_worker_that_begins_anew_forgets_what_was_before(job):
    """Round 1 does not restore, and keeps step 2: round 2 finds that, and not step 9 of round 0."""
    done = job("if ddprun.restart == 2:\n    print('kept', ddprun.restore(), flush=True)\nelse:\n    ddprun.snapshot({'n': 9 - 7 * ddprun.restart}, step=9 - 7 * ddprun.restart)\n"
               "    os._exit(3)\n", "--max-restarts", "2")
    assert done.returncode == 0, done.stderr
    assert "kept {'n': 2}\n" in done.stdout


def test_a_copy_that_was_cut_off_is_not_restored(job):
    """Where the newest is torn in its bytes, its header or not closed, the one before it serves."""
    damage = {"bytes": "memory[own._begin + 4096 + 100] ^= 1", "header": "memory[own._begin + 20] ^= 1", "open": "own.clear()"}
    for how, harm in damage.items():
        done = job("import mmap\nif ddprun.restart:\n    print('kept', ddprun.restore()['n'], flush=True)\n    sys.exit()\n"
                   "for n in (1, 2):\n    ddprun.snapshot({'n': n, 'data': bytearray(5000)}, step=n)\n"
                   "keeper = ddprun._snapshots\n(own,) = [one for one in keeper._own if one.header()['step'] == 2]\n"
                   f"memory = mmap.mmap(keeper._file, 2 << 40)\n{harm}\nos._exit(3)\n", "--max-restarts", "1")
        assert done.returncode == 0, done.stderr
        assert "kept 1\n" in done.stdout, how


def test_any_ranks_copy_serves_one_that_has_lost_its_own(job):
    for replicated in (True, False):
        done = job("if ddprun.restart:\n    print('kept', ddprun.rank, ddprun.restore(), flush=True)\n    sys.exit()\n"
                   f"if ddprun.rank == 0:\n    ddprun.snapshot({{'n': 3}}, step=3, replicated={replicated})\n    os._exit(3)\nimport signal; signal.pause()\n",
                   "--max-restarts", "1", "--nproc-per-node", "2")
        assert done.returncode == 0, done.stderr
        state = {"n": 3} if replicated else None
        assert sorted(re.findall(r"^kept .*$", done.stdout, re.M)) == [f"kept 0 {state}", f"kept 1 {state}"]
        line = "rank 1: the state of step 3 is another rank's copy" if replicated else "ddprun: rank 1 has no snapshot, so that none is restored"
        assert line in done.stderr, done.stderr


# ---- bad input ----


def test_a_snapshot_that_does_not_fit_is_said_once_and_the_job_goes_on(job):
    done = job("from ddprun import _snapshot\n_snapshot.room = lambda: 3 << 20\n"
               "for n in range(3):\n    print('taken', ddprun.snapshot({'x': bytes(2 << 20)}), flush=True)\n", "--nproc-per-node", "1")
    assert done.returncode == 0 and done.stdout == "taken False\n" * 3
    assert re.findall("^ddprun: .*snapshot.*$", done.stderr, re.M) == \
        ["ddprun: rank 0: no snapshots: 2 x 2.01 MiB for each of 1 workers do not fit into the 3 MiB of memory that are left; the job goes on without"]


def test_a_state_that_cannot_be_copied_is_said_once_and_the_job_goes_on(job):
    done = job("for n in range(3):\n    print('taken', ddprun.snapshot({'x': lambda: 1}), flush=True)\n")
    assert done.returncode == 0 and done.stdout == "taken False\n" * 3
    assert done.stderr.count("snapshot() could not copy the state: ") == 1


@pytest.mark.needs_torch_python
def test_a_state_of_another_shape_is_refused_plainly(job):
    done = job("import torch\nwide = 20 + 10 * ddprun.restart\nstate = {'model': torch.nn.Linear(10, wide).state_dict()}\n"
               "if ddprun.restart:\n    print('kept', ddprun.restore(like=state), flush=True)\n    sys.exit()\nddprun.snapshot(state, step=7)\nos._exit(3)\n",
               "--max-restarts", "1")
    assert done.returncode == 0 and "kept None\n" in done.stdout, done.stderr
    assert "ddprun: the snapshot of step 7 has another shape: its model.weight is 20x10, and the script's 30x10; it is not restored\n" in done.stderr


@pytest.mark.needs_torch_python
def test_tensors_of_every_kind_are_the_same_again(job):
    """Bytes, shapes, order in memory, tied weights, Parameters, numpy arrays and all random states; floating types without numpy's like."""
    done = job("""
import numpy, random, torch
torch.manual_seed(1); numpy.random.seed(2); random.seed(3)
layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
shared = torch.randn(5)
state = {"layer": layer.state_dict(), "tied": [shared, shared], "half": torch.randn(3, 4).bfloat16().t(), "complex": torch.randn(4, dtype=torch.cfloat).conj(),
         "bool": torch.tensor([True, False]), "empty": torch.empty(0, 3), "number": torch.tensor(3), "parameter": torch.nn.Parameter(torch.ones(2)),
         "every second": torch.arange(10)[::2], "array": numpy.arange(6.0).reshape(2, 3), "sparse": torch.eye(3).to_sparse()}
if ddprun.restart == 0:
    assert ddprun.snapshot(state, step=1)
    os._exit(3)
numbers = (torch.randn(2), numpy.random.rand(), random.random())
torch.manual_seed(9); numpy.random.seed(9); random.seed(9)
kept = ddprun.restore(like=state)
assert torch.equal(numbers[0], torch.randn(2)) and numbers[1:] == (numpy.random.rand(), random.random())
for name, value in state["layer"].items():
    assert torch.equal(kept["layer"][name], value) and kept["layer"][name].stride() == value.stride()
for name in ("half", "complex", "bool", "empty", "number", "every second"):
    assert torch.equal(kept[name], state[name]) and kept[name].dtype == state[name].dtype, name
assert kept["tied"][0] is kept["tied"][1] and torch.equal(kept["tied"][0], shared)
assert isinstance(kept["parameter"], torch.nn.Parameter) and (kept["array"] == state["array"]).all() and torch.equal(kept["sparse"].to_dense(), torch.eye(3))
kept["array"][0] = 7  # it can be written to
print("the same", flush=True)
""", "--max-restarts", "1")
    assert done.returncode == 0 and "the same\n" in done.stdout, done.stderr


def test_outside_a_job_it_does_nothing():
    code = "import ddprun, sys; print(ddprun.snapshot({'x': 1}), ddprun.restore(), 'pickle' in sys.modules, 'ddprun._snapshot' in sys.modules)"
    done = jobs.run([sys.executable, "-c", code], **{**ENV, "DDPRUN_SNAPSHOTS": "/proc/1/fd/1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "False None False False\n", "")


def test_ranks_of_two_nodes_agree(nodes, tmp_path):
    """Over the coordinator's store. Each node's copy is its own; ranks of the second node are one step behind."""
    (tmp_path / "train.py").write_text("import ddprun, os, sys\nkept = ddprun.restore()\nprint('kept', ddprun.rank, kept, flush=True)\n"
                                       "if kept is None:\n    for n in range(1, 5 - ddprun.rank):\n        ddprun.snapshot({'n': n, 'rank': ddprun.rank}, step=n)\n" + AGAIN)
    port = jobs.free_port()
    for node in ("0", "1"):
        nodes.start("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node, "--max-restarts", "1", "train.py", **ENV)
    assert nodes.wait() == [0, 0], nodes.all_text()
    kept = re.findall(r"^kept (\d) (.*)$", nodes.all_text(), re.M)
    assert sorted(kept) == [("0", "None"), ("0", "{'n': 3, 'rank': 0}"), ("1", "None"), ("1", "{'n': 3, 'rank': 1}")], nodes.all_text()
