"""Faults for --chaos, drawn from a seed, jobs that they are injected into, and what must hold afterwards. Shared by test_soak.py and
bench/soak_bench.py."""

import dataclasses
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import time

import jobs

KINDS = ("kill", "segv", "exit=7", "exit=1", "nan", "flip")  # oom changes the sums' order, so the bits do not stay
PHASES = ("step", "backward", "optimizer")
CAUSES = {"kill": "signal", "segv": "signal", "exit=7": "exit_code", "exit=1": "exit_code", "nan": "diverged", "stop": "hang",
          "hang": "hang", "loop": "hang", "oom": "out_of_memory", "flip": "corrupt_state"}
HANGS = ("stop", "hang", "loop")
COMPARED = {"compare_every_steps": 1}  # "ddp" of a job with flips: the next fault would take one away before it is found


def draw(seed: int, count: int, steps: int, workers: int, hangs: int, ooms: int = 0) -> list[str]:
    """`count` faults at different steps, some of them hangs and refused allocations; no two in neighbouring steps, and none in the
    first four."""
    randomness = random.Random(seed)
    at = sorted(randomness.sample(range(4, steps - 2, 2), count))
    special = randomness.sample(range(count), hangs + ooms)
    faults = []
    for i, step in enumerate(at):
        kind = randomness.choice(KINDS)
        if i in special[:hangs]:
            kind = randomness.choice(HANGS)
        elif i in special[hangs:]:
            kind = "oom"
        where = "" if kind in ("nan", "flip") else f" phase={randomness.choice(PHASES)}"
        faults.append(f"{kind} rank={randomness.randrange(workers)} step={step}{where}")
    return faults


def expected_causes(faults: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fault in faults:
        cause = CAUSES[fault.split()[0]]
        counts[cause] = counts.get(cause, 0) + 1
    return counts


def flags(folder: pathlib.Path, faults: list[str], hang_timeout: float = 2) -> list[str]:
    """Neither the budget nor a pause stands in the way: the faults come faster than any real ones."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps({"max_restarts": 2 * len(faults), "same_failure_rounds": 0,
                                  "causes": {"diverged": 2 * len(faults)}, "pause": {"first_s": 0, "longest_s": 0}}),
                      encoding="utf-8")
    return ["--restart-policy", str(policy), "--hang-timeout", str(hang_timeout), "--chaos", "; ".join(faults)]


def wait_for_all(agents: list[subprocess.Popen], timeout: float) -> list[int | None]:
    """Their exit codes; None for those that still run when one has failed or the time is over."""
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


@dataclasses.dataclass
class Place:
    """A folder in which jobs run, with everything that they may leave somewhere else: temporary files, sockets, states, keys."""

    folder: pathlib.Path
    agents: list[int] = dataclasses.field(default_factory=list)
    begin_with: tuple[str, ...] = ()  # of each command, such as what enters a network namespace

    def environment(self) -> dict[str, str]:
        around = {}
        for variable in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            around[variable] = str(self.folder / variable)
            (self.folder / variable).mkdir(mode=0o700, exist_ok=True)
        return jobs.clean_environment(**around)

    def train(self, ddprun, name: str, config: dict, agents: int, more: list[str], timeout: float = 600) -> str:
        """Two workers, of one agent or of one agent each. Returns what they printed; fails when one of them fails."""
        file = jobs.write_config(self.folder / f"{name}.json", config)
        command = [*self.begin_with, str(ddprun), "--nproc-per-node", str(2 // agents), "--run-dir", str(self.folder / name)]
        if agents > 1:
            command += ["--nnodes", str(agents), "--master-addr", "127.0.0.1", "--master-port", str(jobs.free_port())]
        started = []
        try:
            for number in range(agents):
                with open(self.log(name, number), "wb") as log:
                    started.append(subprocess.Popen([*command, *more, str(file)], env=self.environment(), stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=subprocess.STDOUT))
            codes = wait_for_all(started, timeout)
            self.agents += [agent.pid for agent in started]
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

    def what_is_wrong(self, calm_digest: str, run: str, faults: list[str]) -> list[str]:
        """After a run with all these faults; `calm_digest` is that of the undisturbed run's weights."""
        report, wrong = jobs.report(self.folder / run), []
        if "oom" not in " ".join(faults) and jobs.weights_digest(self.folder / run) != calm_digest:
            wrong.append("the weights differ from those of the undisturbed run")
        struck = len(list((self.folder / run / "chaos").glob("fault-*")))
        if report["failures"] != expected_causes(faults) or struck != len(faults):
            wrong.append(f"the report counts {report['failures']}, {struck} of these struck: {expected_causes(faults)}")
        return wrong + self.things_left()

    def things_left(self) -> list[str]:
        left = [f"cgroup {path}" for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified")
                for agent in self.agents for path in pathlib.Path(root).glob(f"**/ddprun-{agent}")]
        left += [f"process {entry.name}" for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and _mentions(entry, str(self.folder))]
        return left + [f"file {path}" for name in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME") for path in (self.folder / name).rglob("*")
                       if not path.is_dir()]


def _mentions(entry: pathlib.Path, text: str) -> bool:
    try:
        return int(entry.name) != os.getpid() and text in (entry / "cmdline").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
