"""Tests of the straggler monitor. A straggler is a rank that computes longer than the other ranks, which then wait for it.
ddprun must name the rank and the kind of its delay, in a job with a train.json, and in scripts that call ddprun.watch(model)
or report their step times in a different way. `ddprun status`, the events and the report must show the straggler. `./dev bench
stragglers` injects many delays of each kind."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jobs
import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def straggler_job(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import straggler_job
    return straggler_job


# A script that sends the same messages as ddprun.watch(). The reported step times of about 50 ms are constants, so they do not
# depend on the speed of the machine.
REPORTS_TIMES = """
import json, socket, sys, time
import ddprun
for n in range(1, 61):
    slow = ddprun.rank == 1 and {start} <= n <= {end}
    ddprun.step(n, total=60)
    ddprun._channel.pace([[n, 1, 50000 if slow else 20000, 1000 if slow else 31000, 30000 if slow else 0]])
    {each}
"""
LOCKSTEP = "time.sleep(0.01)"


def test_a_straggler_and_its_end_are_reported(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text(REPORTS_TIMES.format(start=5, end=30, each=LOCKSTEP))
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", "2", "--log-dir", "logs", "train.py"], **ENV)
    assert done.returncode == 0, done.stderr
    reported = [line for line in done.stderr.splitlines() if "keeps the others waiting" in line]
    assert len(reported) == 2, done.stderr
    assert "ddprun: rank 1 (pid " in reported[0] and ", that of the others 20 ms, in steps " in reported[0] and "; data: it waited for " in reported[0]
    assert reported[1].split(")")[1].startswith(" no longer keeps the others waiting in steps "), reported[1]
    (report,) = (tmp_path / "logs").glob("*/report.json")
    started, ended = json.loads(report.read_text())["rounds"][0]["stragglers"]
    assert (started["rank"], started["kind"], started["ended"], ended["ended"]) == (1, "data", False, True)
    assert started["step"] - 5 <= 20
    shown = run([ddprun_bin, "report", report.parent]).stdout
    assert "    straggler    rank 1, data: " in shown and " ms per step, the others 20.0 ms, at step " in shown, shown


def test_a_step_reported_twice_hides_no_straggler(ddprun_bin, run, tmp_path):
    """Every fifth step is reported a second time, as after an evaluation."""
    again = "if n % 5 == 0: ddprun._channel.pace([[n, 1, 30000, 1000, 0]])\n    " + LOCKSTEP
    (tmp_path / "train.py").write_text(REPORTS_TIMES.format(start=5, end=100, each=again))
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", "2", "--log-dir", "logs", "train.py"], **ENV)
    assert done.returncode == 0, done.stderr
    [reported] = [line for line in done.stderr.splitlines() if "keeps the others waiting" in line]
    assert reported.startswith("ddprun: rank 1 (pid ") and "; data: it waited for " in reported, reported


def test_events_and_status_show_it(ddprun_bin, tmp_path, straggler_job):
    (tmp_path / "train.py").write_text(REPORTS_TIMES.format(start=5, end=100, each=LOCKSTEP) + "time.sleep(60)\n")
    job = straggler_job.Job([ddprun_bin, "--standalone", "--json", "--nproc-per-node", "2", "--log-dir", "logs", "train.py"], tmp_path,
                            jobs.clean_environment(**ENV, XDG_RUNTIME_DIR=str(tmp_path)))
    try:
        reported = job.wait("straggler", 20)
        assert reported is not None and (reported["rank"], reported["kind"], reported["ended"]) == (1, "data", False)
        schema = json.loads((ROOT / "docs/schemas/events.schema.json").read_text())
        for event in job.of("straggler"):
            jsonschema.validate(event, schema)
        status = json.loads(subprocess.run([ddprun_bin, "status", "--json"], capture_output=True, text=True, check=True,
                                           env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}).stdout)
        jsonschema.validate(status, json.loads((ROOT / "docs/schemas/status.schema.json").read_text()))
        assert [(w["own_s"], w["waiting_s"]) for w in status["workers"]] == [(0.02, 0.031), (0.05, 0.001)]
        shown = subprocess.run([ddprun_bin, "status"], capture_output=True, text=True, check=True,
                               env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}).stdout
        table = [line.split() for line in shown.splitlines()[-3:]]
        assert table[0][-3:] == ["OWN", "WAITS", "MEMORY"]
        assert [row[-6:-2] for row in table[1:]] == [["20.0", "ms", "31.0", "ms"], ["50.0", "ms", "1.0", "ms"]], shown
    finally:
        job.end()


def test_the_time_a_worker_was_stopped_is_an_event(ddprun_bin, run, tmp_path):
    (tmp_path / "job.sh").write_text("(sleep 0.3; kill -CONT $$) &\nkill -STOP $$\nwait\nsleep 0.2\n")
    done = run([ddprun_bin, "--standalone", "--json", "--no-python", "sh", "job.sh"])
    assert done.returncode == 0, done.stdout
    (event,) = [event for line in done.stdout.splitlines() if (event := json.loads(line))["event"] == "worker_continued"]
    assert event["rank"] == 0 and 0.25 < event["stopped_s"] < 5
    jsonschema.validate(event, json.loads((ROOT / "docs/schemas/events.schema.json").read_text()))


# ---- a train.json ----


@pytest.fixture
def training(ddprun_bin, tmp_path, straggler_job):
    """Returns a training job with two workers, in which each step takes about 20 ms."""
    dataset = jobs.write_small_dataset(tmp_path / "data")
    config = jobs.write_config(tmp_path / "train.json", jobs.config(dataset, model={"type": "mlp", "hidden": [1024, 1024]}, batch_size=320, epochs=100000, log={"every_steps": 50},
                                                                    checkpoint={"every_steps": 1000}))
    job = straggler_job.Job([ddprun_bin, "--json", "--nproc-per-node", "2", "--run-dir", tmp_path / "run", config], tmp_path, jobs.clean_environment())
    assert job.wait_for_step(60, 60), job.events
    yield job
    assert job.end() == 85


def test_a_trainer_rank_that_is_stopped_repeatedly(training, straggler_job):
    for rank in (1, 0):
        since = len(training.events)
        with straggler_job.pulses(training.pid(rank)):
            # On a busy machine, the other rank may already have been reported as the straggler. Then the end of that report
            # precedes the expected report.
            reported = training.wait("straggler", 40, since, rank=rank, ended=False)
        assert reported is not None and reported["kind"] == "processor", training.of("straggler")
        assert training.wait_for_end_of(reported, 20)


@pytest.mark.long
def test_a_trainer_rank_with_a_cpu_quota(training, straggler_job):
    since = len(training.events)
    try:
        with straggler_job.quota(training.pid(1), training.folder):
            reported = training.wait("straggler", 40, since, rank=1, ended=False)
    except straggler_job.NotAvailable as reason:
        pytest.skip(str(reason))
    assert reported is not None and reported["kind"] == "processor", training.of("straggler")


def test_a_custom_loop_rank_that_is_stopped_repeatedly(ddprun_bin, tmp_path, straggler_job):
    loop = ddprun_bin.parent.parent / "tests" / "own_worker" / "own_loop"
    job = straggler_job.Job([ddprun_bin, "--standalone", "--json", "--nproc-per-node", "2", "--log-dir", "logs", loop, "1000000000"], tmp_path,
                            jobs.clean_environment(XDG_RUNTIME_DIR=str(tmp_path)))
    try:
        assert job.wait_for_step(60, 60), job.events
        # A step of this job takes 3 ms. A rank is reported as a straggler only if it delays each step by at least 2 ms, so the
        # stops are long.
        with straggler_job.pulses(job.pid(1), stopped=0.3):
            reported = job.wait("straggler", 40, rank=1, ended=False)
        assert reported is not None and reported["kind"] == "processor", job.of("straggler")
        status = json.loads(jobs.run([ddprun_bin, "status", "--json"], XDG_RUNTIME_DIR=str(tmp_path)).stdout)
        assert all(worker["own_s"] > 0 and worker["waiting_s"] >= 0 for worker in status["workers"]), status
    finally:
        assert job.end() == 85


# ---- several nodes ----


def test_a_straggler_of_another_node_is_named_by_rank_0s_node(nodes, tmp_path):
    (tmp_path / "train.py").write_text(REPORTS_TIMES.format(start=5, end=100, each="time.sleep(0.03)"))
    port = jobs.free_port()
    for node in range(2):
        nodes.start("--nnodes", 2, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port, "--log-dir", tmp_path / "logs", tmp_path / "train.py", **ENV,
                    XDG_STATE_HOME=str(tmp_path / f"state-{node}"))
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert "ddprun: rank 1 keeps the others waiting: " in nodes.text(0) and "; data: it waited for " in nodes.text(0), nodes.all_text()
    assert "keeps the others waiting" not in nodes.text(1)


@pytest.mark.long
@pytest.mark.parametrize("slow", [0, 2])
def test_a_node_with_a_slow_link(hosts, tmp_path, slow):
    """One of three hosts has a slow network link. The ranks exchange 8 MB per step."""
    dataset = jobs.write_small_dataset(tmp_path / "data")
    config = jobs.write_config(tmp_path / "train.json", jobs.config(dataset, model={"type": "mlp", "hidden": [1024, 1024]}, batch_size=320, epochs=100000, log={"every_steps": 50},
                                                                    checkpoint={"every_steps": 100000}))
    for host in range(3):
        hosts.start_on(host, "--nnodes", 3, "--node-rank", host, "--master-addr", hosts.address(0), "--json", "--run-dir", tmp_path / "run", config)
    hosts.until(lambda: any(e["event"] == "progress" and e["step"] >= 100 for e in events_of(hosts.text(0))), "a hundred steps")
    slowed = subprocess.run(["tc", "-n", hosts.space(slow), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "100ms"],
                            capture_output=True, text=True, check=False)
    if slowed.returncode != 0:
        pytest.skip(f"cannot slow down a link on this machine: {slowed.stderr.strip()}")
    # Three ranks share a few cores, so a rank may first be reported because it does not get enough CPU time.
    reported = hosts.until(lambda: [e for e in events_of(hosts.text(0)) if e["event"] == "straggler" and e["kind"] == "network"], "a slow network")[0]
    assert reported.get("rank") == slow, reported
    assert f"the link of rank {slow}'s node is slow" in reported["message"]
    hosts.agents[0].send_signal(signal.SIGTERM)
    hosts.wait()


def events_of(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


# ---- a script that calls watch() for its model ----


# The script saves, copies and scripts (with TorchScript) a watched model, both inside and outside of DistributedDataParallel.
# Then it runs two steps. In the first step, rank 0 starts the forward pass late, so rank 1 waits for the broadcast of rank 0's
# buffers. The second step is reported twice.
WATCHED = """
import copy, io, os, time
import torch, torch.distributed as dist
import ddprun
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(3)
dist.init_process_group("gloo")
def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))

batch = torch.randn(3, 4)
inner = net()
model = ddprun.watch(DistributedDataParallel(inner))
expected = copy.deepcopy(inner)(batch)
torch.save(model.module, "inner.pt%d" % ddprun.rank)
torch.save(model, io.BytesIO())
assert ddprun.snapshot({"inner": model.module, "whole": model}, step=1)
assert torch.jit.script(model.module)(batch).equal(expected)
assert copy.deepcopy(model.module)(batch).equal(expected)

alone = ddprun.watch(net())
torch.save(alone, "alone.pt%d" % ddprun.rank)
copied = copy.deepcopy(alone)
assert copied(batch).equal(alone(batch)) and copied(batch)._backward_hooks is None and len(alone(batch)._backward_hooks) == 1

pace = ddprun._pace_watch
dist.barrier()
ddprun.step(1)
if ddprun.rank == 0:
    open("rank 1 is there").read()
    time.sleep(0.3)
else:
    open("rank 1 is there", "w").close()
model(batch).sum().backward()
waited = pace._waited
ddprun.step(2)
time.sleep(0.05)
ddprun.step(2, eval_loss=1.0)
dist.barrier()
ddprun.step(3)
n, steps, own, *_ = pace._times[-1]
print("rank", ddprun.rank, "waited" if waited > 0.2 else "came late", "step", n, "of", steps, own >= 0.05, flush=True)
"""


@pytest.mark.needs_torch_python
def test_a_watched_model_is_saved_copied_and_scripted_as_before(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text(WATCHED)
    os.mkfifo(tmp_path / "rank 1 is there")
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", "2", "--log-dir", "logs", "train.py"], **ENV)
    assert done.returncode == 0, done.stderr
    # The saved models must load in a process that cannot import ddprun.
    code = ("import sys\nsys.modules['ddprun'] = None\nimport torch\nfor name in ('inner.pt0', 'alone.pt0'):\n"
            "    print(torch.load(name, weights_only=False)(torch.ones(2, 4)).shape)\n")
    read = jobs.run([sys.executable, "-c", code], cwd=tmp_path)
    assert read.stdout == 2 * "torch.Size([2, 4])\n", read.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == ["rank 0 came late step 3 of 1 True", "rank 1 waited step 3 of 1 True"]


@pytest.mark.long
@pytest.mark.needs_torch_python
def test_a_watched_model_is_compiled_as_before(ddprun_bin, run, tmp_path):
    """A watched model compiles to one graph, both inside DistributedDataParallel and without it. The hooks must not be
    compiled: a compiled hook would treat its measured times as constants."""
    beginning, _ = WATCHED.split("inner = net()")
    (tmp_path / "train.py").write_text(beginning + """
compiled = net()
compiled.compile(fullgraph=True, backend="eager")
assert ddprun.watch(DistributedDataParallel(compiled))(batch).shape == (3, 4)
outside = torch.compile(ddprun.watch(DistributedDataParallel(net())), backend="eager")
pace = ddprun._pace_watch
for n in range(1, 5):
    ddprun.step(n)
    dist.barrier()
    if ddprun.rank == 0:
        time.sleep(0.2)
    outside(batch).sum().backward()
    late = (pace._data if ddprun.rank == 0 else pace._waited) >= 0.15
    if n > 2:  # in the second step, DistributedDataParallel waits once for its buckets
        print("rank", ddprun.rank, n, late, flush=True)
""")
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", "2", "--log-dir", "logs", "train.py"], **ENV)
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [f"rank {rank} {n} True" for rank in (0, 1) for n in (3, 4)]


@pytest.mark.long
@pytest.mark.needs_torch_python
def test_watching_a_model_changes_no_number(ddprun_bin, tmp_path, straggler_job):
    """Watching a model does not change its losses. If a model is watched, the rank that waits for its data is reported as the
    straggler."""
    results = []
    for watch in (False, True):
        folder = tmp_path / str(watch)
        folder.mkdir()
        job = straggler_job.ScriptJob(ddprun_bin, folder, jobs.clean_environment(**ENV), watch=watch, steps=80)
        with job.planted("data", 1):
            assert job.wait("run_ended", 60)["exit_code"] == 0
        results += [line["line"] for line in job.of("output") if line["line"].startswith("at last")]
        reported = [(e["rank"], e["kind"], e["ended"]) for e in job.of("straggler")]
        assert reported == ([(1, "data", False)] if watch else []), reported
    assert len(results) == 2 and results[0] == results[1]


@pytest.mark.long
@pytest.mark.needs_torch_python
def test_every_kind_in_a_script(ddprun_bin, tmp_path, straggler_job):
    job = straggler_job.ScriptJob(ddprun_bin, tmp_path, jobs.clean_environment(**ENV))
    try:
        assert job.wait_for_step(60, 120)
        for kind, named in straggler_job.KINDS.items():
            since, reported = len(job.events), None
            with contextlib.suppress(straggler_job.NotAvailable), job.planted(kind, 1):
                reported = job.wait("straggler", 20, since, ended=False)
                assert reported is not None and (reported["rank"], reported["kind"]) == (1, named), (kind, reported)
            assert reported is None or job.wait_for_end_of(reported, 20)
            time.sleep(1)
    finally:
        job.end()
