"""Tests of ddprun.snapshot() and ddprun.restore().

A script may be killed at any moment. After the restart, it must resume from the newest step for which every rank has a
snapshot, and its losses must equal the losses of an undisturbed run. An incomplete snapshot, or a snapshot with a different
shape, must not be restored. A snapshot that does not fit into memory must not be taken. In all these cases the job
continues."""

import os
import pathlib
import random
import re
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from ddprun import _snapshot, _snapshot_choice, _snapshot_copy  # noqa: E402

PROGRAMS = ROOT / "tests/whole_program/reference/programs"
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def policy(tmp_path):
    """Returns options with a restart policy in which failures in the first second are not a crash loop."""
    (tmp_path / "policy.json").write_text('{"pause": {"instant_s": 0}}')
    return ["--restart-policy", tmp_path / "policy.json"]


@pytest.fixture
def job(ddprun_bin, run, tmp_path):
    def go(body: str, *options: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess:
        (tmp_path / "train.py").write_text("import ddprun, os, sys\n" + body)
        return run([ddprun_bin, "--standalone", "--log-dir", "logs", *options, "train.py"], timeout=timeout, **{**ENV, **env})

    return go


# ---- kills ----

# A script for two ranks. In every step the ranks exchange one random number each and add the two numbers, like an all-reduce.
# Each rank has 1 MiB of state and its own random generator.
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
            signal.pause()  # the other rank has died, so the agent ends this rank
        state["sum"] += own + struct.unpack("d", theirs)[0]
        state["bytes"][n * 4099 % (1 << 20)] = n % 251
        log.write("%d %s\\n" % (n, hashlib.sha1(state["bytes"] + struct.pack("d", state["sum"])).hexdigest())); log.flush()
        assert ddprun.snapshot(state, step=n)
"""


def losses(out: pathlib.Path) -> dict[int, dict[int, set[str]]]:
    """Returns the values that the ranks have logged, as {rank: {step: set of values}}. A repeated step may have several values.
    An incomplete last line is ignored."""
    found: dict[int, dict[int, set[str]]] = {0: {}, 1: {}}
    for rank, steps in found.items():
        for line in out.with_name(f"{out.name}.{rank}").read_text().split("\n")[:-1]:
            step, value = line.split(" ")
            steps.setdefault(int(step), set()).add(value)
    return found


def newest(out: pathlib.Path) -> int:
    """Returns the newest step that any rank has logged. A killed rank can have been one step ahead of the step from which all
    ranks resumed."""
    return max(max(steps) for steps in losses(out).values())


def check_same(disturbed: pathlib.Path, undisturbed: pathlib.Path, at_least: int) -> None:
    got, expected = losses(disturbed), losses(undisturbed)
    for rank in (0, 1):
        assert len(got[rank]) >= at_least and sorted(got[rank]) == list(range(1, len(got[rank]) + 1))
        assert got[rank] == {step: expected[rank][step] for step in got[rank]}


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.long)])
def test_a_kill_at_any_moment_loses_no_step(job, policy, tmp_path, kills):
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
def test_a_kill_does_not_change_the_losses_of_a_ddp_script(ddprun_bin, run, policy, tmp_path, kills):
    seed = random.randrange(1000000)

    def train(kills: int, steps: int, out: str) -> subprocess.CompletedProcess:
        return run([ddprun_bin, "--standalone", "--log-dir", "logs", "--nproc-per-node", "2", "--max-restarts", kills, *policy,
                    PROGRAMS / "snapshots_ddp.py", steps, kills, seed, tmp_path / out], timeout=120 + 30 * kills, **ENV)

    done = train(kills, 30, "out")
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    # Gloo may report the end of the killed rank to the other rank before the agent detects it. Then the other rank is recorded
    # as the first rank that failed.
    assert len(re.findall(r"^ddprun: restart \d+ of", done.stderr, re.M)) == kills and "signal 9 (SIGKILL)" in done.stderr
    begins = [int(n) for n in re.findall(r"^starts after (\d+)$", done.stdout, re.M)]
    assert begins[::2] == begins[1::2] == sorted(begins[::2]) and len(begins) == 2 * (kills + 1)
    last = newest(tmp_path / "out")
    assert train(0, last, "expected").returncode == 0
    check_same(tmp_path / "out", tmp_path / "expected", 30)


# ---- the restored state ----

# In this code the ranks of the first attempt wait for each other before they fail.
AGAIN = """
if ddprun.restart == 0:
    open("done.%d" % ddprun.rank, "w").close()
    while not os.path.exists("done.%d" % (1 - ddprun.rank)):
        pass
    os._exit(3)
"""


def test_state_and_random_numbers_continue(job):
    done = job("import random\nkept = ddprun.restore()\nprint('kept', kept and kept['step'], flush=True)\n"
               "if kept is None:\n    random.seed(7); random.random()\n    ddprun.step(12)\n    assert ddprun.snapshot({'step': 12})\n"
               "print('next', random.random(), flush=True)" + AGAIN, "--max-restarts", "1", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"^(?:kept|next) .*$", done.stdout, re.M)
    chance = random.Random(7)
    chance.random()
    assert sorted(printed) == ["kept 12"] * 2 + ["kept None"] * 2 + [f"next {chance.random()}"] * 4
    assert len(re.findall(r"(?m)^ddprun: snapshots take 2 x ", done.stderr)) == 1  # the failure message may quote this line


def test_the_newest_common_step_is_restored(job):
    """Rank 1 has not taken the last snapshot, so both ranks restore the previous snapshot. The script reports no steps, so
    snapshots are numbered by their count."""
    done = job("kept = ddprun.restore()\nprint('kept', kept, flush=True)\n"
               "if kept is None:\n    for n in range(1, 6 - ddprun.rank):\n        ddprun.snapshot({'n': n})\n" + AGAIN,
               "--max-restarts", "1", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^kept (.*)$", done.stdout, re.M).count("{'n': 4}") == 2


def test_a_fresh_worker_clears_earlier_copies(job):
    """After the first start, the script takes a snapshot of step 9. After the second start, it restores nothing and takes a
    snapshot of step 2. The second snapshot must invalidate the first, so that step 2 is restored after the third start."""
    done = job("if ddprun.restart == 2:\n    print('kept', ddprun.restore(), flush=True)\nelse:\n    ddprun.snapshot({'n': 9 - 7 * ddprun.restart}, step=9 - 7 * ddprun.restart)\n"
               "    os._exit(3)\n", "--max-restarts", "2")
    assert done.returncode == 0, done.stderr
    assert "kept {'n': 2}\n" in done.stdout


def test_an_incomplete_copy_is_not_restored(job):
    """The newest snapshot has a corrupted byte in its data or header, is not complete, or has a header that claims more bytes
    than exist. In each case the older snapshot must be restored."""
    forged = "from ddprun import _snapshot_copy as s\nraw = s.header_of({**own.header(), 'buffers': 1 << %d})\nmemory[own._begin:own._begin + len(raw)] = raw"
    damage = {"bytes": "memory[own._begin + 4096 + 100] ^= 1", "header": "memory[own._begin + 20] ^= 1", "open": "own.clear()",
              "beyond the file": forged % 60, "sparse": forged % 39}
    for how, harm in damage.items():
        done = job("import mmap\nif ddprun.restart:\n    print('kept', ddprun.restore()['n'], flush=True)\n    sys.exit()\n"
                   "for n in (1, 2):\n    ddprun.snapshot({'n': n, 'data': bytearray(5000)}, step=n)\n"
                   "keeper = ddprun._snapshots\n(own,) = [one for one in keeper._own if one.header()['step'] == 2]\n"
                   f"memory = mmap.mmap(keeper._file, 2 << 40)\n{harm}\nos._exit(3)\n", "--max-restarts", "1")
        assert done.returncode == 0, done.stderr
        assert "kept 1\n" in done.stdout, how


def test_a_replicated_copy_serves_a_rank_without_one(job):
    for replicated in (True, False):
        done = job("if ddprun.restart:\n    print('kept', ddprun.rank, ddprun.restore(), flush=True)\n    sys.exit()\n"
                   f"if ddprun.rank == 0:\n    ddprun.snapshot({{'n': 3}}, step=3, replicated={replicated})\n    os._exit(3)\nimport signal; signal.pause()\n",
                   "--max-restarts", "1", "--nproc-per-node", "2")
        assert done.returncode == 0, done.stderr
        state = {"n": 3} if replicated else None
        assert sorted(re.findall(r"^kept .*$", done.stdout, re.M)) == [f"kept 0 {state}", f"kept 1 {state}"]
        line = "rank 1: the state of step 3 is a copy of another rank's state" if replicated else "ddprun: no snapshot is restored: rank 1 has none"
        assert line in done.stderr, done.stderr


@pytest.mark.parametrize("how", ["by ddprun", "by the script"])
def test_ranks_with_equal_local_ranks_keep_separate_copies(job, how):
    options = ["--virtual-local-rank"] if how == "by ddprun" else []
    done = job("os.environ['LOCAL_RANK'] = '0'\nkept = ddprun.restore()\nprint('kept', ddprun.rank, kept, flush=True)\n"
               "if kept is None:\n    for n in range(1, 4):\n        assert ddprun.snapshot({'n': n, 'rank': ddprun.rank}, step=n)\n" + AGAIN,
               *options, "--max-restarts", "1", "--nproc-per-node", "2", CUDA_VISIBLE_DEVICES="0,1")
    assert done.returncode == 0, done.stderr
    kept = re.findall(r"^kept (\d) (.*)$", done.stdout, re.M)
    assert sorted(kept) == [("0", "None"), ("0", "{'n': 3, 'rank': 0}"), ("1", "None"), ("1", "{'n': 3, 'rank': 1}")], done.stderr


# ---- many ranks of one node in one process ----


class Node:
    """The snapshot memory of a node. The Snapshots objects of all ranks are in the test process. Normally each object is in a
    separate worker process."""

    def __init__(self, ranks: int, places: int = 0):
        self.file = os.memfd_create("test")
        os.ftruncate(self.file, (places or ranks) << 41)
        self.printed = []
        self.round = -1
        self.begin_round(ranks)

    def begin_round(self, ranks: int, turned: int = 0) -> list[_snapshot.Snapshots]:
        """Creates new Snapshots objects, as if all workers were restarted. The earlier snapshots still exist. The assignment
        of memory slots to ranks is shifted by `turned` positions."""
        self.round += 1
        self.ranks = [_snapshot.Snapshots(f"/proc/self/fd/{self.file}:{(rank + turned) % ranks}", rank, ranks, self.round, self.print_line)
                      for rank in range(ranks)]
        return self.ranks

    def print_line(self, text: str, with_rank: bool = True) -> None:
        self.printed.append(text)

    def restore(self, likes=None) -> list:
        for rank, one in enumerate(self.ranks):
            one._like = likes[rank] if likes else None
        decision = _snapshot_choice.decide([{**one._offer(), "at": 0} for one in self.ranks])
        self.why = decision.get("why")
        return [one.restore(one._like, lambda offer: decision) for one in self.ranks]


@pytest.fixture
def node():
    made = []

    def make(*args) -> Node:
        made.append(Node(*args))
        return made[-1]

    yield make
    for one in made:
        os.close(one.file)


@pytest.mark.parametrize("replicated", [True, False])
def test_a_repeated_step_is_a_different_copy(node, replicated):
    """Rank 1 has a snapshot of step 11 when all ranks restart from step 10. After the restart, only rank 0 takes a snapshot of
    step 11, with a different state. The two snapshots have the same step number but must not be restored together."""
    one = node(2)
    first, second = one.ranks
    for n in (9, 10):
        for rank in one.ranks:
            rank.take({"n": n, "round": 0}, n, replicated)
    second.take({"n": 11, "round": 0}, 11, replicated)  # rank 0 is killed before it takes a snapshot of this step
    first, second = one.begin_round(2)
    assert one.restore() == [{"n": 10, "round": 0}] * 2
    first.take({"n": 11, "round": 1}, 11, replicated)  # rank 1 is killed before it takes a snapshot of this step
    one.begin_round(2)
    assert one.restore() == [{"n": 10, "round": 0}] * 2
    for rank in one.ranks:
        rank.take({"n": 11, "round": 2}, 11, replicated)
    one.begin_round(2)
    assert one.restore() == [{"n": 11, "round": 2}] * 2


def test_fresh_ranks_share_no_step_with_earlier_ones(node):
    one = node(2)
    one.ranks[0].take({"n": 100, "round": 0}, 100, False)
    one.begin_round(2)
    assert one.restore() == [None, None]
    one.ranks[1].take({"n": 100, "round": 1}, 100, False)  # rank 0 is killed before it takes a snapshot
    one.begin_round(2)
    assert one.restore() == [None, None]
    assert one.why == "no snapshot is restored: no step has a snapshot on every rank"


def test_ranks_count_snapshots_equally_after_a_restore(node):
    """Rank 1 has no snapshot and restores a copy of rank 0's snapshot of step 4. The next snapshot of both ranks must then have
    the number 5."""
    one = node(2)
    for n in range(1, 5):
        one.ranks[0].take({"n": n}, None, True)
    one.begin_round(2)
    assert one.restore() == [{"n": 4}] * 2
    for rank in one.ranks:
        rank.take({"n": 5}, None, True)
    assert [max(generation.header()["step"] for generation in rank._own if generation.header()) for rank in one.ranks] == [5, 5]
    one.begin_round(2)
    assert one.restore() == [{"n": 5}] * 2


def test_all_ranks_fit_into_sufficient_memory(node, monkeypatch):
    """Each rank checks that the snapshots of all ranks fit into the free memory. Memory that other ranks have already
    allocated must not be counted again. The memory of this test is just sufficient."""
    size, ranks = 2 << 20, 4
    one = node(ranks)

    def free_memory(most: int = 2 * ranks * size + (1 << 20)) -> int:
        return most - 512 * os.fstat(one.file).st_blocks

    monkeypatch.setattr(_snapshot, "free_memory", free_memory)
    for step in (1, 2, 3):
        assert [rank.take({"x": bytes(size)}, step, False) for rank in one.ranks] == [True] * ranks, one.printed
    assert 0 < free_memory() < 1 << 20


@pytest.mark.parametrize("left,fits", [(7, True), (5, False)])
def test_memory_taken_by_another_worker_counts_once(node, monkeypatch, left, fits):
    """Rank 0 computes how much memory the node still needs, and then reads how much is free. Between these two actions, rank 1
    allocates its memory without writing to it. Then rank 0 must compute the need again. If it did not, it would count the
    memory of rank 1 as needed, even though that memory is already allocated."""
    size = 2 << 20
    one = node(2)
    reads = []

    def free_memory() -> int:
        if not reads:
            one.ranks[1]._own[0]._opened(_snapshot_copy.PAGE + size)
        reads.append(left << 20)
        return reads[-1]

    # Two generations of two workers take slightly more than 8 MiB, and 2 MiB are in use. A snapshot contains the state of each
    # random generator, so the exact size of a snapshot depends on the modules that this process has imported.
    monkeypatch.setattr(_snapshot, "free_memory", free_memory)
    assert one.ranks[0].take({"x": bytes(size)}, 1, False) == fits and len(reads) == 2
    assert re.fullmatch(r"snapshots take 2 x 2\.0\d MiB of memory per worker" if fits else
                        r"no snapshots of this rank: two snapshots of 2\.0\d MiB for each of 2 workers need 6\.0\d MiB more memory, but only 5 MiB is free; "
                        r"the job continues without them", one.printed[0])


@pytest.mark.parametrize("replicated", [True, False])
def test_a_rank_reads_only_its_own_slot(node, monkeypatch, replicated):
    """To list the available snapshots, each copy on the node is read once, by the rank that owns its memory slot. After a step
    is chosen, each rank reads its copy of this step once more."""
    size, ranks = 1 << 20, 6
    one = node(ranks)
    for n in (1, 2):
        for rank in one.ranks:
            rank.take({"x": bytearray(size)}, n, replicated)
    one.begin_round(ranks)
    read = [0]

    def counted(self, kind, buffers, structure, really=_snapshot_copy.Generation._sum):
        read[0] += buffers + structure
        return really(self, kind, buffers, structure)

    monkeypatch.setattr(_snapshot_copy.Generation, "_sum", counted)
    assert one.restore() == [{"x": bytearray(size)}] * ranks
    offers = 2 * 2 * ranks * size  # the factor is 2, because Node.restore() collects all offers twice
    assert offers + ranks * size <= read[0] < offers + ranks * size + size


def test_a_copy_of_a_lost_rank_serves_all(node):
    """A new rank uses the memory slot of a lost rank. The new rank must offer the copy in this slot to all ranks, even if its
    number differs from the number of the lost rank."""
    one = node(3)
    one.ranks[2].take({"n": 7}, 7, True)
    for turned in (0, 1):
        one.begin_round(3, turned)
        assert one.restore() == [{"n": 7}] * 3


def test_a_copy_refused_by_one_rank_is_not_used(node):
    class Shaped:
        shape = (1,)

    one = node(2)
    one.ranks[0].take({"n": 7}, 7, True)
    one.begin_round(2)
    assert one.restore(likes=[None, {"weight": Shaped()}]) == [None, None]
    assert one.why == "the snapshot of step 7 is not restored, because it differs from the state of the script: weight is missing in the snapshot"
    assert one.restore() == [{"n": 7}] * 2


# ---- bad input ----


def test_memory_without_a_slot_for_this_worker_is_refused(node):
    one = node(2)
    for place, why in {"": "DDPRUN_SNAPSHOTS contains no slot number, so the agent and this Python package have different versions: install both from the same release",
                       ":2": "it has 2 slots, but this worker needs slot number 2, counted from 0"}.items():
        with pytest.raises(ValueError, match="^" + why + "$"):
            _snapshot.Snapshots(f"/proc/self/fd/{one.file}{place}", 0, 2, 0, one.print_line)


def test_a_too_large_snapshot_is_reported_once(job):
    done = job("from ddprun import _snapshot\n_snapshot.free_memory = lambda: 3 << 20\n"
               "for n in range(3):\n    print('taken', ddprun.snapshot({'x': bytes(2 << 20)}), flush=True)\n", "--nproc-per-node", "1")
    assert done.returncode == 0 and done.stdout == "taken False\n" * 3
    assert re.findall("^ddprun: .*snapshot.*$", done.stderr, re.M) == \
        ["ddprun: rank 0: no snapshots of this rank: two snapshots of 2.01 MiB for each of 1 workers need 4.02 MiB more memory, but only 3 MiB is free; "
         "the job continues without them"]


def test_a_state_that_cannot_be_copied_is_reported_once(job):
    done = job("for n in range(3):\n    print('taken', ddprun.snapshot({'x': lambda: 1}), flush=True)\n")
    assert done.returncode == 0 and done.stdout == "taken False\n" * 3
    assert done.stderr.count("snapshot() could not copy the state: ") == 1


@pytest.mark.needs_torch_python
def test_a_state_of_another_shape_is_refused(job):
    done = job("import torch\nwide = 20 + 10 * ddprun.restart\nstate = {'model': torch.nn.Linear(10, wide).state_dict()}\n"
               "if ddprun.restart:\n    print('kept', ddprun.restore(like=state), flush=True)\n    sys.exit()\nddprun.snapshot(state, step=7)\nos._exit(3)\n",
               "--max-restarts", "1")
    assert done.returncode == 0 and "kept None\n" in done.stdout, done.stderr
    assert "ddprun: the snapshot of step 7 is not restored, because it differs from the state of the script: model.weight is 20x10 in the snapshot, but 30x10 in the state of the script\n" in done.stderr


@pytest.mark.needs_torch_python
def test_tensors_of_every_kind_are_restored(job):
    """The kinds include tensors with all memory layouts, tied weights, Parameters, floating-point types that numpy lacks, numpy
    arrays, and the states of all random generators."""
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


@pytest.mark.needs_torch_python
def test_torch_save_semantics_are_preserved(job):
    """The special cases are trained tensors that are not Parameters, shared storages, strides of one-element tensors, and a
    `like` that contains a cycle or an object with a method named shape."""
    done = job("""
import torch
class Named:
    def shape(self): return 1
base = torch.arange(10.)
p = torch.nn.Parameter(torch.ones(3))
state = {"prompt": torch.ones(2, requires_grad=True), "base": base, "view": base[2:8], "one": torch.arange(4.)[::4], "column": torch.zeros(1, 5)[:, 2],
         "imag": torch.tensor([1 + 2j]).imag, "conj": torch.tensor([1 + 2j]).conj(), "wide": torch.ones(1).expand(4), "p": p, "data": p.data,
         "last": torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), "none": torch.empty(0, 3), "named": Named()}
state["self"] = state
if ddprun.restart == 0:
    assert ddprun.snapshot(state, step=1)
    sys.exit(3)
kept = ddprun.restore(like=state)
for name, value in state.items():
    if isinstance(value, torch.Tensor):
        one = kept[name]
        assert torch.equal(one, value) and one.stride() == value.stride() and one.requires_grad == value.requires_grad and type(one) is type(value), name
assert kept["self"] is kept and kept["prompt"].is_leaf
kept["base"][3] = 77
assert kept["view"][1] == 77 and kept["p"].data_ptr() == kept["data"].data_ptr()
kept["prompt"].sum().backward()
torch.optim.SGD([kept["prompt"]], lr=1.0).step()
assert kept["prompt"].tolist() == [0, 0]
print("kept", flush=True)
""", "--max-restarts", "1")
    assert done.returncode == 0 and done.stdout == "kept\n", done.stderr


@pytest.mark.needs_torch_python
def test_a_bare_storage_is_refused(job):
    done = job("import torch\nassert not ddprun.snapshot(torch.ones(3).untyped_storage())\n")
    assert done.returncode == 0 and "a bare storage cannot be copied; pass its tensor" in done.stderr, done.stderr


@pytest.mark.needs_torch_python
def test_tensors_are_restored_on_the_cpu(job):
    """The script sets another default device. The state of the random generator is also a tensor, and a sparse tensor is built
    from other tensors; none of them may be created on that device."""
    done = job("""
import torch
torch.set_default_device("meta")
torch.manual_seed(5)
state = {"whole": torch.arange(12.0, device="cpu").reshape(3, 4), "sparse": torch.eye(3, device="cpu").to_sparse(), "ones": torch.ones(2, device="cpu")}
if ddprun.restart == 0:
    assert ddprun.snapshot(state, step=1)
    os._exit(3)
drawn = torch.randn(4, device="cpu")
torch.manual_seed(9)
kept = ddprun.restore(like=state)
for name, value in state.items():
    assert kept[name].device.type == "cpu" and torch.equal(kept[name].to_dense(), value.to_dense()), name
assert torch.equal(drawn, torch.randn(4, device="cpu"))
assert torch.empty(1).device.type == "meta"  # it is as the script has set it
print("the same", flush=True)
""", "--max-restarts", "1")
    assert done.returncode == 0 and "the same\n" in done.stdout, done.stderr


def test_outside_a_job_it_does_nothing():
    code = "import ddprun, sys; print(ddprun.snapshot({'x': 1}), ddprun.restore(), 'pickle' in sys.modules, 'ddprun._snapshot' in sys.modules)"
    done = jobs.run([sys.executable, "-c", code], **{**ENV, "DDPRUN_SNAPSHOTS": "/proc/1/fd/1:0"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "False None False False\n", "")


def test_ranks_of_two_nodes_agree(nodes, tmp_path):
    """The ranks agree through the coordinator's store. Each node has its own snapshots, and the rank of the second node is one
    step behind."""
    (tmp_path / "train.py").write_text("import ddprun, os, sys\nkept = ddprun.restore()\nprint('kept', ddprun.rank, kept, flush=True)\n"
                                       "if kept is None:\n    for n in range(1, 5 - ddprun.rank):\n        ddprun.snapshot({'n': n, 'rank': ddprun.rank}, step=n)\n" + AGAIN)
    port = jobs.free_port()
    for node in ("0", "1"):
        nodes.start("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node, "--max-restarts", "1", "train.py", **ENV)
    assert nodes.wait() == [0, 0], nodes.all_text()
    kept = re.findall(r"^kept (\d) (.*)$", nodes.all_text(), re.M)
    assert sorted(kept) == [("0", "None"), ("0", "{'n': 3, 'rank': 0}"), ("1", "None"), ("1", "{'n': 3, 'rank': 1}")], nodes.all_text()
