"""Provides jobs with several agents on this machine. Tests kill workers or agents of a job, and the other workers keep their
state. The output of each agent is read as it is printed, so that a test can wait for an event and then kill a process."""

import json
import os
import pathlib
import signal
import subprocess
import threading

import jobs
from live_jobs import EPOCHS, assert_same_run, end_of
from node_agents import keep_records


class Agent:
    """One agent of the job, with the events that it has printed."""

    def __init__(self, job: "NodesJob", command: list, environment: dict):
        self.job, self.events, self.errors = job, [], ""
        self.process = subprocess.Popen([str(c) for c in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, cwd=job.folder)
        self.readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            with self.job.changed:
                self.events.append(event)
                self.job.changed.notify_all()
        with self.job.changed:
            self.job.changed.notify_all()

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def of(self, event: str) -> list[dict]:
        return [e for e in self.events if e["event"] == event]

    def pids(self) -> dict[int, int]:
        """Returns the pid of the newest process of each worker on this node, by local rank."""
        return {e["local_rank"]: e["pid"] for e in self.of("worker_started")}

    def ranks(self) -> set[int]:
        return {e["rank"] for e in self.of("worker_started")}

    def kill_worker(self, local_rank: int):
        try:
            os.kill(self.pids()[local_rank], signal.SIGKILL)
        except ProcessLookupError:
            pass

    def step(self) -> int:
        return max([e["step"] for e in self.events if e["event"] in ("progress", "phase")], default=-1)

    def at_work(self) -> bool:
        """Returns True if a step has finished on this node since the newest start of its workers."""
        last_start = max((i for i, e in enumerate(self.events) if e["event"] in ("round_started", "regrouped")), default=-1)
        return last_start >= 0 and any(e["event"] == "progress" for e in self.events[last_start:])

    def end(self, timeout: float = 120) -> int:
        return end_of(self.process, self.readers, timeout)


class NodesJob:
    """A job whose agents all run on this machine and share a run directory. At the end of the `with` block, all agents are
    killed. `program` is a command that the job runs instead of training with train.json."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path, dataset: pathlib.Path | None, *, nodes: str, workers: int, options=(), program=(), **changes):
        folder.mkdir(exist_ok=True)
        self.folder, self.run_dir = folder, folder / "run"
        work = list(program)
        if not program:
            self.config = jobs.config(dataset, **{"epochs": EPOCHS, "checkpoint": {"every_steps": 70, "keep": 3}, **changes})
            work = ["--run-dir", self.run_dir, jobs.write_config(folder / "train.json", self.config)]
        token = folder / "token"
        token.write_text(os.urandom(32).hex() + "\n")
        token.chmod(0o600)
        self.command = [ddprun, "--token-file", token, "--json", "--nnodes", nodes, "--nproc-per-node", workers,
                        "--master-addr", "127.0.0.1", "--master-port", jobs.free_port(), "--max-restarts", 100000,
                        *options, *work]
        self.changed = threading.Condition()
        self.agents: list[Agent] = []

    def start(self, count: int = 1, recovery: str = "live", **environment: str) -> Agent:
        more = {"XDG_CONFIG_HOME": str(self.folder / "config"), "TMPDIR": str(self.folder)}
        for _ in range(count):
            number = len(self.agents)
            state = {"XDG_STATE_HOME": keep_records(self.folder / f"state-{number}")}
            command = [self.command[0], "--recovery", recovery, *self.command[1:]]
            self.agents.append(Agent(self, command, jobs.clean_environment(**more, **state, **environment)))
            # If no other agent is running, this agent starts the job and becomes its coordinator.
            if all(a.process.poll() is not None for a in self.agents[:-1]):
                agent = self.agents[-1]
                self.wait_until(lambda: any("coordinates" in e.get("text", "") for e in agent.events) or agent.process.poll() is not None)
        return self.agents[-1]

    def wait_until(self, condition, timeout: float = 60):
        with self.changed:
            assert self.changed.wait_for(condition, timeout), f"nothing happened\n{self.story()}"

    def story(self) -> str:
        left_out = {"progress", "phase", "evaluation", "checkpoint", "position"}
        return "".join(f"--- agent {n} ({agent.process.poll()}) ---\n{agent.errors}"
                       + "".join(json.dumps(e)[:400] + "\n" for e in agent.events if e["event"] not in left_out)
                       for n, agent in enumerate(self.agents))

    def finish(self) -> list[int]:
        return [agent.end() for agent in self.agents]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.process.kill()
        for agent in self.agents:
            agent.end()


def pause(job: NodesJob, seconds: float) -> None:
    """Waits for some seconds while other threads read the agents' output."""
    with job.changed:
        job.changed.wait_for(lambda: False, seconds)


# ---- checks of a finished job ----


def steps_made_twice(run) -> list[int]:
    """Returns the repeated steps in metrics.jsonl. A step is repeated if its number is not larger than the number of the step
    before it."""
    steps = [e["step"] for e in jobs.metrics(run, "step")]
    return [step for before, step in zip(steps, steps[1:]) if step <= before]


def assert_continued(job: NodesJob, calm) -> None:
    assert_same_run(job, calm)
    assert jobs.metrics(job.run_dir, "restart") == [], job.story()
    assert steps_made_twice(job.run_dir) == []
    assert all(agent.of("regroup_failed") == [] for agent in job.agents), job.story()


def assert_trained_through(job: NodesJob) -> None:
    """Checks that no step was repeated or skipped when the number of workers changed."""
    epochs = job.config["epochs"]
    assert jobs.metrics(job.run_dir, "restart") == [], job.story()
    assert [e["step"] for e in jobs.metrics(job.run_dir, "step")] == list(range(1, 20 * epochs + 1))
    jobs.assert_each_sample_once(job.run_dir, epochs)
    assert all(agent.of("regroup_failed") == [] for agent in job.agents), job.story()
