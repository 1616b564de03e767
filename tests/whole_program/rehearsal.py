"""Draws faults from a seed, runs jobs in which these faults occur, and checks the results. `--chaos` injects most faults. This
module itself stalls the disk of the run directory. test_soak.py and bench/soak_bench.py use this module."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import threading
import time

import jobs
from disks import StallingDisk

# "oom" is not in this list, because it changes the order of sums, so the weights would differ in some bits.
KINDS = ("kill", "segv", "exit=7", "exit=1", "nan", "flip")
PHASES = ("step", "backward", "optimizer")
CAUSES = {"kill": "signal", "segv": "signal", "exit=7": "exit_code", "exit=1": "exit_code", "nan": "diverged", "stop": "hang",
          "hang": "hang", "loop": "hang", "oom": "out_of_memory", "flip": "corrupt_state"}
HANGS = ("stop", "hang", "loop")
STALL = "stall"
HANG_TIMEOUT = 5.0  # --hang-timeout in seconds for jobs whose run directory stalls
# Longest stall of the disk in seconds. If a worker waits for the disk for this time, it must not be reported as hanging.
LONGEST_STALL = 0.7 * HANG_TIMEOUT
MAX_FAULTS, MIN_FAULTS = 1000, 300
# The "ddp" settings of jobs with bit flips. With these settings the ranks compare their states in every step. If they compared
# less often, the next fault could remove the corrupt state before the bit flip is detected.
COMPARED = {"compare_every_steps": 1}


@dataclasses.dataclass(frozen=True)
class Mix:
    """The number of faults in a run, and how many of them are hangs, failed allocations and stalls of the run directory. The
    kinds of the other faults are drawn from `kinds`. A kind that occurs several times in `kinds` is drawn more often."""

    count: int
    hangs: int = 0
    ooms: int = 0
    stalls: int = 0
    kinds: tuple[str, ...] = KINDS

    @staticmethod
    def of(seed: int, count: int | None = None, stalls: bool = True) -> "Mix":
        """Draws the faults of a soak test from the seed: their number (unless `count` is given), their kinds, and the frequency
        of each kind."""
        randomness = random.Random(f"mix of seed {seed}")
        drawn = randomness.randint(MIN_FAULTS, MAX_FAULTS)
        hangs, stalling = randomness.uniform(0.05, 0.15), randomness.uniform(0.03, 0.1)
        kinds = tuple(kind for kind in KINDS for _ in range(randomness.randint(1, 4)))
        count = count or drawn
        return Mix(count, hangs=round(count * hangs), stalls=max(1, round(count * stalling)) if stalls else 0, kinds=kinds)


def draw(seed: int, mix: Mix, steps: int, workers: int) -> list[str]:
    """Draws mix.count steps, and one fault for each step. The steps differ by at least 2, and the first step is at least 4.
    The last fault is not a stall, because the job might end during it."""
    randomness = random.Random(seed)
    at = sorted(randomness.sample(range(4, steps - 2, 2), mix.count))
    special = randomness.sample(range(mix.count - 1 if mix.stalls else mix.count), mix.hangs + mix.ooms + mix.stalls)
    faults = []
    for i, step in enumerate(at):
        kind = randomness.choice(mix.kinds)
        if i in special[:mix.hangs]:
            kind = randomness.choice(HANGS)
        elif i in special[mix.hangs:mix.hangs + mix.ooms]:
            kind = "oom"
        elif i in special[mix.hangs + mix.ooms:]:
            faults.append(f"{STALL} step={step} seconds={randomness.uniform(1, LONGEST_STALL):.1f}")
            continue
        where = "" if kind in ("nan", "flip") else f" phase={randomness.choice(PHASES)}"
        faults.append(f"{kind} rank={randomness.randrange(workers)} step={step}{where}")
    return faults


def injected(faults: list[str]) -> list[str]:
    """Returns the faults that the option --chaos of ddprun injects: all faults except stalls of the disk."""
    return [fault for fault in faults if not fault.startswith(STALL)]


def stalls(faults: list[str]) -> list[tuple[int, float]]:
    """Returns the step and the duration in seconds of each stall of the disk."""
    return [(int(step.removeprefix("step=")), float(seconds.removeprefix("seconds=")))
            for kind, step, seconds in (fault.split() for fault in faults if fault.startswith(STALL))]


def expected_causes(faults: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fault in injected(faults):
        cause = CAUSES[fault.split()[0]]
        counts[cause] = counts.get(cause, 0) + 1
    return counts


def flags(folder: pathlib.Path, faults: list[str], hang_timeout: float = HANG_TIMEOUT) -> list[str]:
    """Returns options that inject the faults. These options also raise the restart limits and remove the pauses between
    restarts, because injected faults occur more often than real faults."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps({"max_restarts": 2 * len(faults), "same_failure_rounds": 0,
                                  "causes": {"diverged": 2 * len(faults)}, "pause": {"first_s": 0, "longest_s": 0}}),
                      encoding="utf-8")
    return ["--restart-policy", str(policy), "--hang-timeout", str(hang_timeout), "--chaos", "; ".join(injected(faults))]


def wait_for_all(agents: list[subprocess.Popen], timeout: float) -> list[int | None]:
    """Returns the exit codes of the agents. The exit code is None for an agent that was still running when another agent failed
    or the timeout expired."""
    waiting = {os.pidfd_open(agent.pid): agent for agent in agents}
    end = time.monotonic() + timeout
    try:
        while waiting and not any(agent.poll() for agent in agents):
            ended, _, _ = select.select(list(waiting), [], [], max(0.0, end - time.monotonic()))
            if not ended:
                break
            for fd in ended:
                waiting.pop(fd).wait()
                os.close(fd)
    finally:
        for fd in waiting:
            os.close(fd)
    return [agent.poll() for agent in agents]


class Stalls:
    """Stalls the disk of a run directory for the planned durations. A stall starts when the run first reaches its planned
    step."""

    def __init__(self, disk: StallingDisk, run: pathlib.Path, planned: list[tuple[int, float]]):
        self.disk, self.metrics, self.planned, self.made = disk, run / "metrics.jsonl", planned, 0
        self._over = threading.Event()

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self):
        read = reached = 0
        for step, seconds in self.planned:
            while reached < step:
                if self._over.wait(0.05):
                    return
                if self.metrics.exists():
                    whole, newline, _ = self.metrics.read_bytes()[read:].rpartition(b"\n")
                    read += len(whole + newline)
                    reached = max([reached, *(int(number) for number in re.findall(rb'"event":"step".*?"step":(\d+)', whole))])
            self.disk.stall(seconds)
            self.made += 1


@dataclasses.dataclass
class Place:
    """A folder in which jobs run. This folder also contains the files that jobs normally create in other folders: temporary
    files, sockets, records and keys. If `disk` is set, the run directories are on that disk."""

    folder: pathlib.Path
    agents: list[int] = dataclasses.field(default_factory=list)
    # words to put before each command line, for example a command that runs the job in a network namespace
    begin_with: tuple[str, ...] = ()
    disk: StallingDisk | None = None
    stalls_made: int = 0  # number of disk stalls during the last job

    def run_dir(self, name: str) -> pathlib.Path:
        return (self.disk.folder if self.disk else self.folder) / name

    def environment(self) -> dict[str, str]:
        around = {}
        for variable in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            around[variable] = str(self.folder / variable)
            (self.folder / variable).mkdir(mode=0o700, exist_ok=True)
        return jobs.clean_environment(**around)

    def train(self, ddprun, name: str, config: dict, agents: int, more: list[str], timeout: float = 600, faults: list[str] = ()) -> str:
        """Trains with two workers, on one agent or on two. Returns the output of all agents. Raises AssertionError if an agent
        fails. This method itself causes the disk stalls in `faults`. The options of flags() inject the other faults."""
        file = jobs.write_config(self.folder / f"{name}.json", config)
        command = [*self.begin_with, str(ddprun), "--nproc-per-node", str(2 // agents), "--run-dir", str(self.run_dir(name))]
        if agents > 1:
            command += ["--nnodes", str(agents), "--master-addr", "127.0.0.1", "--master-port", str(jobs.free_port())]
        started = []
        stalling = Stalls(self.disk, self.run_dir(name), stalls(faults)) if stalls(faults) else None
        try:
            for number in range(agents):
                with open(self.log(name, number), "wb") as log:
                    started.append(subprocess.Popen([*command, *more, str(file)], env=self.environment(), stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=subprocess.STDOUT))
            with stalling.running() if stalling else contextlib.nullcontext():
                codes = wait_for_all(started, timeout)
            self.agents += [agent.pid for agent in started]
            self.stalls_made = stalling.made if stalling else 0
        finally:
            for agent in started:
                if agent.poll() is None:
                    agent.send_signal(signal.SIGKILL)
                    agent.wait()
        text = "".join(f"--- agent {n} ---\n" + self.log(name, n).read_text(errors="replace") for n in range(agents))
        if codes != [0] * agents:
            raise AssertionError(f"{' '.join(command)} ended with {codes}:\n{text[-6000:]}")
        return text

    def log(self, name: str, number: int) -> pathlib.Path:
        return self.folder / f"{name}-{number}.log"

    def describe_problem(self, undisturbed_digest: str, run: str, faults: list[str]) -> list[str]:
        """Checks a run in which the faults have occurred, and returns a list of problems. `undisturbed_digest` is the digest of
        the weights of a run without faults."""
        run_dir, wrong = self.run_dir(run), []
        report = jobs.report(run_dir)
        if "oom" not in " ".join(faults) and jobs.weights_digest(run_dir) != undisturbed_digest:
            wrong.append("the weights differ from those of the undisturbed run")
        struck = len(list((run_dir / "chaos").glob("fault-*")))
        if report["failures"] != expected_causes(faults) or struck != len(injected(faults)):
            wrong.append(f"the report counts {report['failures']}, {struck} of these struck: {expected_causes(faults)}")
        if self.stalls_made != len(stalls(faults)):
            wrong.append(f"{self.stalls_made} of {len(stalls(faults))} stalls were made")
        return wrong + self.leftovers()

    def leftovers(self) -> list[str]:
        left = [f"cgroup {path}" for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified")
                for agent in self.agents for path in pathlib.Path(root).glob(f"**/ddprun-{agent}")]
        left += [f"process {entry.name}" for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and _mentions(entry, str(self.folder))]
        return left + [f"file {path}" for name in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME") for path in (self.folder / name).rglob("*")
                       if not path.is_dir() and not path.name.startswith("node-failures.")]


def _mentions(entry: pathlib.Path, text: str) -> bool:
    try:
        return int(entry.name) != os.getpid() and text in (entry / "cmdline").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
