"""Tests of the steps of a launch that depend on the machine: the number of GPUs and CPUs, the binding of workers to CPUs or to
one device, the environment of the workers, timers that kill a worker, workers that cannot be killed, and signals."""

import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOPOLOGIES = ROOT / "tests" / "launcher" / "machine" / "topologies"

# A replacement for libnvidia-ml.so.1, which ddprun loads with dlopen. $FAKE_NVML is a comma-separated list of GPUs, each in the
# form "uuid/bus/slice+slice".
FAKE_NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct gpu { char uuid[96]; unsigned bus; int slices; char slice[4][96]; } gpus[16];
static unsigned count;
int nvmlInit_v2(void) {
  const char* text = getenv("FAKE_NVML");
  if (!text) return 9; /* driver not loaded */
  char* copy = strdup(text); char* outer;
  for (char* entry = strtok_r(copy, ",", &outer); entry; entry = strtok_r(NULL, ",", &outer)) {
    struct gpu* g = &gpus[count++]; char* inner;
    strcpy(g->uuid, strtok_r(entry, "/", &inner));
    g->bus = (unsigned)strtoul(strtok_r(NULL, "/", &inner), NULL, 16);
    char* slices = strtok_r(NULL, "/", &inner); char* last;
    for (char* s = slices ? strtok_r(slices, "+", &last) : NULL; s; s = strtok_r(NULL, "+", &last)) strcpy(g->slice[g->slices++], s);
  }
  return 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) { *device = &gpus[i]; return 0; }
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  snprintf(text, size, "%s", (char*)device); /* a slice's handle is its text */
  return 0;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void* device, struct pci* info) {
  memset(info, 0, sizeof *info); info->bus = ((struct gpu*)device)->bus; return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* n) { *n = (unsigned)((struct gpu*)device)->slices; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned i, void** slice) { *slice = ((struct gpu*)device)->slice[i]; return 0; }
"""

FOUR_GPUS = "GPU-11aa/01,GPU-11bb/02,GPU-22cc/81,GPU-33dd/c1"


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """Returns a folder for LD_LIBRARY_PATH that contains the replacement of NVML's library."""
    compiler = shutil.which("cc") or shutil.which("c++")
    if not compiler:
        pytest.skip("needs a C compiler to build a fake NVML")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(FAKE_NVML)
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-w", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True)
    return folder


def write_script(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def planned(run, ddprun, *args, **environment) -> dict:
    result = run([ddprun, "--dry-run", "--json", *args], **environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def planned_workers(run, ddprun, nvml, gpus, visible=None) -> int:
    environment = {"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML": gpus}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    plan = planned(run, ddprun, "--nproc-per-node", "gpu", "--no-python", "true", **environment)
    return int(plan["values"]["nproc_per_node"]["value"])


# ---- counting ----


@pytest.mark.parametrize("visible,count", [(None, 4), ("2,0", 2), ("GPU-22,GPU-11a", 2), ("GPU-11aa,0", 1), ("0,9,1", 1)])
def test_gpus_are_counted_by_nvml(run, ddprun, nvml, visible, count):
    assert planned_workers(run, ddprun, nvml, FOUR_GPUS, visible) == count


def test_slices_are_counted_by_their_uuids(run, ddprun, nvml):
    assert planned_workers(run, ddprun, nvml, "GPU-11aa/01/MIG-a1+MIG-a2,GPU-11bb/02", "MIG-a2,MIG-a1") == 2


@pytest.mark.parametrize("visible", ["", "GPU-11", "GPU-99", "1,1", "-1"])
def test_no_visible_gpu_is_an_error(run, ddprun, nvml, visible):
    result = run([ddprun, "--nproc-per-node", "gpu", "--no-python", "true"], LD_LIBRARY_PATH=str(nvml), FAKE_NVML=FOUR_GPUS,
                 CUDA_VISIBLE_DEVICES=visible)
    assert result.returncode == 2
    assert "no GPU is visible" in result.stderr


def test_auto_counts_gpus_else_cpus(run, ddprun, nvml):
    environment = {"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML": FOUR_GPUS}
    plan = planned(run, ddprun, "--nproc-per-node", "auto", "--no-python", "true", **environment)
    assert plan["values"]["nproc_per_node"]["value"] == "4"
    plan = planned(run, ddprun, "--nproc-per-node", "auto", "--no-python", "true", **environment, CUDA_VISIBLE_DEVICES="")
    assert int(plan["values"]["nproc_per_node"]["value"]) <= len(os.sched_getaffinity(0))


def test_cpus_are_those_of_the_affinity(run, ddprun):
    one = min(os.sched_getaffinity(0))
    result = run(["taskset", "-c", str(one), ddprun, "--dry-run", "--json", "--nproc-per-node", "cpu", "--no-python", "true"])
    assert json.loads(result.stdout)["values"]["nproc_per_node"]["value"] == "1"


def new_group(controller: str) -> pathlib.Path:
    """Creates a cgroup (v1) below the given controller. Skips the test if this is not possible."""
    group = pathlib.Path("/sys/fs/cgroup") / controller / f"ddprun-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cannot create a cgroup of the v1 controller {controller} on this machine: {error}")
    return group


@pytest.mark.parametrize("quota,count", [(150000, 1), (200000, 2)])
def test_cpus_are_cut_by_the_quota_rounded_down(ddprun, quota, count):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    group = new_group("cpu")
    try:
        try:
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            pytest.skip(f"this machine does not allow a CPU quota: {error}")
        result = subprocess.run([ddprun, "--dry-run", "--json", "--nproc-per-node", "cpu", "--no-python", "true"], check=True,
                                capture_output=True, text=True,
                                preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        assert json.loads(result.stdout)["values"]["nproc_per_node"]["value"] == str(count)
    finally:
        group.rmdir()


def test_xpus_need_intels_driver(run, ddprun):
    if any(pathlib.Path("/dev/dri").glob("renderD*")):
        pytest.skip("this machine has a graphics card")
    result = run([ddprun, "--nproc-per-node", "xpu", "--no-python", "true"])
    assert result.returncode == 2
    assert "no Intel GPU is visible" in result.stderr


# ---- binding ----

MODULE = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", ROOT / "build")) / "lib" / "ddprun" / "libddprun_topology.so"
with_hwloc = pytest.mark.skipif(not MODULE.exists(), reason="ddprun was built without hwloc")


def cpus(plan: dict) -> list[str]:
    return [v["value"] for name, v in plan["values"].items() if name.startswith("cpus_of_local_rank_")]


@with_hwloc
@pytest.mark.parametrize("mode,expected", [
    ("node", ["0-3,16-19", "0-3,16-19", "8-11,24-27", "12-15,28-31"]),
    ("socket", ["0-7,16-23", "0-7,16-23", "8-15,24-31", "8-15,24-31"]),
    ("exclusive", ["0-1,16-17", "2-3,18-19", "8-11,24-27", "12-15,28-31"]),
    ("core-complex", ["0-1,16-17", "2-3,18-19", "8-9,24-25", "12-13,28-29"]),
])
def test_each_binding_mode_on_another_topology(run, ddprun, nvml, mode, expected):
    plan = planned(run, ddprun, "--nproc-per-node", "gpu", "--numa-binding", mode, "--no-python", "true", LD_LIBRARY_PATH=str(nvml),
                   FAKE_NVML=FOUR_GPUS, HWLOC_XMLFILE=str(TOPOLOGIES / "two-sockets-four-nodes.xml"))
    assert cpus(plan) == expected


@with_hwloc
def test_the_visible_devices_order_counts(run, ddprun, nvml):
    plan = planned(run, ddprun, "--nproc-per-node", "gpu", "--numa-binding", "node", "--no-python", "true", LD_LIBRARY_PATH=str(nvml),
                   FAKE_NVML=FOUR_GPUS, CUDA_VISIBLE_DEVICES="3,GPU-11a,0",
                   HWLOC_XMLFILE=str(TOPOLOGIES / "two-sockets-four-nodes.xml"))
    assert cpus(plan) == ["12-15,28-31"]  # an entry that is not valid ends the list
    plan = planned(run, ddprun, "--nproc-per-node", "gpu", "--numa-binding", "node", "--no-python", "true", LD_LIBRARY_PATH=str(nvml),
                   FAKE_NVML=FOUR_GPUS, CUDA_VISIBLE_DEVICES="3,0", HWLOC_XMLFILE=str(TOPOLOGIES / "two-sockets-four-nodes.xml"))
    assert cpus(plan) == ["12-15,28-31", "0-3,16-19"]


@with_hwloc
def test_workers_run_on_their_cpus_only(run, ddprun, tmp_path):
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs CPUs 0 and 1")
    script = write_script(tmp_path / "cpus.sh", 'grep Cpus_allowed_list /proc/self/status > "$OUT.$RANK"\n')
    result = run([ddprun, "--nproc-per-node", "2", "--numa-binding", "exclusive", "--no-python", script], OUT=str(tmp_path / "cpus"),
                 HWLOC_SYNTHETIC="core:2 pu:1", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert [(tmp_path / f"cpus.{rank}").read_text().split()[1] for rank in (0, 1)] == ["0", "1"]


@with_hwloc
def test_this_machines_own_topology_is_used(run, ddprun, tmp_path):
    script = write_script(tmp_path / "cpus.sh", 'grep Cpus_allowed_list /proc/self/status > "$OUT"\n')
    options = ["--numa-binding", "node", "--no-python", script]
    plan = planned(run, ddprun, *options, CUDA_VISIBLE_DEVICES="")
    assert run([ddprun, *options], OUT=str(tmp_path / "cpus"), CUDA_VISIBLE_DEVICES="").returncode == 0
    assert [(tmp_path / "cpus").read_text().split()[1]] == cpus(plan)


@with_hwloc
def test_too_few_cores_are_reported_before_the_start(run, ddprun, tmp_path):
    script = write_script(tmp_path / "mark.sh", 'touch "$OUT"\n')
    result = run([ddprun, "--nproc-per-node", "3", "--numa-binding", "exclusive", "--no-python", script], OUT=str(tmp_path / "started"),
                 HWLOC_SYNTHETIC="core:2 pu:1", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2
    assert "2 cores" in result.stderr and "3 workers" in result.stderr
    assert not (tmp_path / "started").exists()


@with_hwloc
def test_missing_cpus_are_named(run, ddprun):
    result = run([ddprun, "--nproc-per-node", "2", "--numa-binding", "exclusive", "--no-python", "true"],
                 HWLOC_SYNTHETIC="core:1024 pu:1", CUDA_VISIBLE_DEVICES="")
    if os.cpu_count() > 512:
        pytest.skip("this machine has CPU 512")
    assert result.returncode not in (0, 2)
    assert "cannot bind" in result.stdout + result.stderr


def test_more_workers_than_gpus_cannot_be_bound(run, ddprun, nvml):
    if not MODULE.exists():
        pytest.skip("ddprun was built without hwloc")
    result = run([ddprun, "--nproc-per-node", "5", "--numa-binding", "node", "--no-python", "true"], LD_LIBRARY_PATH=str(nvml),
                 FAKE_NVML=FOUR_GPUS)
    assert result.returncode == 2
    assert "there are 5 workers and 4 GPUs" in result.stderr


def test_binding_without_its_module_names_it(run, ddprun, tmp_path):
    (tmp_path / "bin").mkdir()
    alone = shutil.copy(ddprun, tmp_path / "bin" / "ddprun")
    result = run([alone, "--numa-binding", "node", "--no-python", "true"])
    assert result.returncode == 2
    assert "hwloc" in result.stderr and "libhwloc" in result.stderr
    assert run([alone, "--no-python", "true"]).returncode == 0


# ---- the workers' environment ----


@pytest.fixture
def run_torchrun(torchrun, tmp_path):
    """Returns a function that runs torchrun. The function has the same arguments and the same result as `run`, which runs
    ddprun."""

    def start(args, **environment: str) -> subprocess.CompletedProcess:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
        streams = {name: tmp_path / f"torchrun.{name}" for name in ("stdout", "stderr")}
        for file in streams.values():
            file.touch()
        code = torchrun.run({"arguments": [str(a) for a in args], "environment": {**inherited, **environment}, "cwd": str(tmp_path),
                             **{name: str(file) for name, file in streams.items()}}, 60)
        return subprocess.CompletedProcess(args, code, *(file.read_text() for file in streams.values()))

    return start


def environments(run, launcher, tmp_path, *options, workers=2, **environment) -> list[dict]:
    """Returns the environment variables of each worker, in the order of ranks."""
    script = write_script(tmp_path / "show.sh", 'env -0 > "$OUT.$RANK"\n')
    result = run([*launcher, "--nproc-per-node", str(workers), "--master-port", str(jobs.free_port()), *options, "--no-python", script],
                 OUT=str(tmp_path / "env"), **environment)
    assert result.returncode == 0, result.stderr
    return [dict(entry.split("=", 1) for entry in (tmp_path / f"env.{rank}").read_text().split("\0") if entry)
            for rank in range(workers)]


# Variables that may differ between the launchers. Names of files and numbers of ports differ, and the shell sets some
# variables. Only ddprun connects its workers to their agent and to the snapshot memory.
OWN_VALUES = {"DDPRUN_CHANNEL", "DDPRUN_CHANNEL_INODE", "DDPRUN_SNAPSHOTS", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT", "_", "SHLVL", "OUT", "PWD",
              "OLDPWD"}


@pytest.mark.needs_torch_python
@pytest.mark.parametrize("workers,extra", [(1, {}), (2, {}), (2, {"OMP_NUM_THREADS": "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
                                           (2, {"PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR2", "CUDA_VISIBLE_DEVICES": " 4,7"}),
                                           (1, {"OMP_NUM_THREADS": "", "TORCHELASTIC_TIMER_FILE": "/some/file"})])
def test_the_environment_matches_torchrun(run, run_torchrun, ddprun, tmp_path, workers, extra):
    # The environment contains stale values, as if the launcher itself were a worker. torchrun and ddprun must both overwrite them.
    stale = {"RANK": "7", "MASTER_ADDR": "elsewhere", "TORCHELASTIC_RESTART_COUNT": "9", "LOCAL_WORLD_SIZE": "5"}
    for name in ("torchrun", "ddprun"):
        (tmp_path / name).mkdir()
    theirs = environments(run_torchrun, [], tmp_path / "torchrun", "--max-restarts", "2", workers=workers, **stale, **extra)
    ours = environments(run, [ddprun], tmp_path / "ddprun", "--max-restarts", "2", workers=workers, **stale, **extra)
    for their, our in zip(theirs, ours):
        assert {k: v for k, v in our.items() if k not in OWN_VALUES} == {k: v for k, v in their.items() if k not in OWN_VALUES}
        assert set(our) == set(their) | {"DDPRUN_CHANNEL", "DDPRUN_CHANNEL_INODE", "DDPRUN_SNAPSHOTS"}


@pytest.mark.parametrize("size", [14_000, 15_500, 16_000, 16_500, 100_000])
def test_a_large_environment_arrives_complete(run, ddprun, tmp_path, size):
    """The agent sends a small environment in its message to the guardian, and a large environment in a memory file. The test
    uses sizes just below and just above the limit."""
    value = "".join(chr(ord("a") + i % 26) for i in range(size))
    for found in environments(run, [ddprun], tmp_path, MANY_BYTES=value):
        assert found["MANY_BYTES"] == value


# ---- one device each ----


@pytest.mark.needs_torch_python
@pytest.mark.parametrize("visible", [None, "3, 1", " GPU-ab , MIG-cd "])
def test_virtual_local_ranks_match_torchrun(run, run_torchrun, ddprun, tmp_path, visible):
    devices = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    for name in ("torchrun", "ddprun"):
        (tmp_path / name).mkdir()
    theirs = environments(run_torchrun, [], tmp_path / "torchrun", "--virtual-local-rank", **devices)
    ours = environments(run, [ddprun], tmp_path / "ddprun", "--virtual-local-rank", **devices)
    for their, our in zip(theirs, ours):
        assert our["LOCAL_RANK"] == "0"
        assert our["CUDA_VISIBLE_DEVICES"] == their["CUDA_VISIBLE_DEVICES"]
        assert {k: v for k, v in our.items() if k not in OWN_VALUES} == {k: v for k, v in their.items() if k not in OWN_VALUES}


def test_too_few_devices_for_virtual_local_ranks(run, ddprun):
    result = run([ddprun, "--nproc-per-node", "3", "--virtual-local-rank", "--no-python", "true"], CUDA_VISIBLE_DEVICES="0,1")
    assert result.returncode == 2
    assert "CUDA_VISIBLE_DEVICES=0,1" in result.stderr and "local rank 2" in result.stderr


# ---- timers ----

TIMER_WORKER = """
import os, signal, sys
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient
import time
client = FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"])
client.acquire("harmless", time.time() + 3600)
client.acquire("released", time.time() + 0.2)
client.release("released")
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    client.acquire("too slow", time.time() + 0.1)
    signal.pause()
"""

# A worker that sets a timer like FileTimerClient in PyTorch. It writes the same bytes, but does not import torch.
PLAIN_TIMER_WORKER ="""
import json, os, signal, time
def request(scope, seconds, number):
    line = json.dumps({"version": 1, "pid": os.getpid(), "scope_id": scope, "expiration_time": seconds, "signal": number})
    with open(os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY | os.O_NONBLOCK), "w") as pipe:
        pipe.write(line + "\\n")
request("harmless", time.time() + 3600, 9)
request("released", time.time() + 0.2, 9)
request("released", -1, 0)
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    request("too slow", time.time() + 0.1, 9)
    signal.pause()
"""


def check_timer_run(run, ddprun, tmp_path, text):
    script = tmp_path / "worker.py"
    script.write_text(text)
    result = run([ddprun, "--nproc-per-node", "2", "--max-restarts", "1", "--run-dir", tmp_path / "run", script], timeout=120,
                 PYTHON_EXEC=sys.executable, TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=str(tmp_path / "pipe"))
    assert result.returncode == 0, result.stderr
    assert "timer expired: 'too slow'" in result.stdout + result.stderr
    report = (tmp_path / "run" / "report.json").read_text()
    assert "timer_expired" in report and "'too slow'" in report
    assert not (tmp_path / "pipe").exists()


def test_an_expired_timer_kills_its_worker(run, ddprun, tmp_path):
    check_timer_run(run, ddprun, tmp_path, PLAIN_TIMER_WORKER)


@pytest.mark.needs_torch_python
def test_torchs_own_timer_client_is_served(run, ddprun, tmp_path):
    check_timer_run(run, ddprun, tmp_path, TIMER_WORKER)


def test_a_timer_file_that_is_not_a_pipe_is_kept(run, ddprun, tmp_path):
    (tmp_path / "precious").write_text("data")
    result = run([ddprun, "--no-python", "true"], TORCHELASTIC_ENABLE_FILE_TIMER="1",
                 TORCHELASTIC_TIMER_FILE=str(tmp_path / "precious"))
    assert result.returncode == 2
    assert "is not a pipe" in result.stderr
    assert (tmp_path / "precious").read_text() == "data"


def test_without_the_variable_there_is_no_pipe(run, ddprun, tmp_path):
    [environment] = environments(run, [ddprun], tmp_path, workers=1, TMPDIR=str(tmp_path))
    assert "TORCHELASTIC_TIMER_FILE" not in environment
    [environment] = environments(run, [ddprun], tmp_path, workers=1, TMPDIR=str(tmp_path), TORCHELASTIC_ENABLE_FILE_TIMER="1")
    assert environment["TORCHELASTIC_TIMER_FILE"].startswith(str(tmp_path / "watchdog_timer_"))
    assert not list(tmp_path.glob("watchdog_timer_*"))


# ---- workers that cannot be killed ----


def test_an_unkillable_worker_ends_the_job(run, ddprun, tmp_path):
    group = new_group("freezer")  # a frozen process is in state D, in which SIGKILL stays pending
    script = write_script(tmp_path / "freeze.sh", f"""
if [ "$RANK" = 1 ]; then
  echo $$ > {group}/cgroup.procs
  echo FROZEN > {group}/freezer.state
fi
exec sleep 1000
""")
    try:
        result = run([ddprun, "--nproc-per-node", "2", "--max-restarts", "3", "--run-dir", tmp_path / "run", "--no-python", script],
                     TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT="0.5")
    finally:
        stuck = (group / "cgroup.procs").read_text().split()
        (group / "freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 20
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()
    assert len(stuck) == 1
    assert result.returncode == 89, result.stderr
    assert "uninterruptible sleep" in result.stdout + result.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert "uninterruptible" in json.dumps(report)
    assert report["exit"]["code"] == 89


class FrozenRank:
    """A job with two workers. Rank 1 freezes itself: it is then in state D, in which SIGKILL stays pending. Then rank 0
    fails."""

    def __init__(self, ddprun, tmp_path):
        self.group = new_group("freezer")
        script = write_script(tmp_path / "freeze.sh", f"""
if [ "$RANK" = 1 ]; then
  echo $$ > {self.group}/cgroup.procs
  echo FROZEN > {self.group}/freezer.state
  exec sleep 1000
fi
until [ "$(cat {self.group}/freezer.state)" = FROZEN ]; do sleep 0.05; done
exit 7
""")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
        self.report = tmp_path / "run" / "report.json"
        self.agent = subprocess.Popen([ddprun, "--nproc-per-node", "2", "--shutdown-timeout", "1", "--run-dir", tmp_path / "run", "--no-python",
                                       script], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True)

    def reported(self, what):
        """Waits until the last round of the report contains the key `what`, and returns its value. The agent writes the report
        shortly after it prints the event to the console."""
        deadline = time.monotonic() + 20
        while True:
            last = json.loads(self.report.read_text())["rounds"][-1]
            if what in last or time.monotonic() > deadline:
                return last[what]
            time.sleep(0.01)

    def thaw(self):
        (self.group / "freezer.state").write_text("THAWED")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.agent.kill()
        self.agent.wait()
        self.thaw()
        deadline = time.monotonic() + 20
        while (self.group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.group.rmdir()


def test_a_slow_stop_names_the_remaining_workers(ddprun, tmp_path):
    with FrozenRank(ddprun, tmp_path) as job:
        line = next(line for line in job.agent.stderr if "still waiting for" in line)
        assert "rank 0" in line and "failed: exit code 7" in line
        assert "rank 1 (pid" in line and "in state D" in line
        assert "still waiting for" in job.reported("stop_is_slow")["message"]
        job.thaw()
        assert job.agent.wait(timeout=60) == 7


@pytest.mark.long
def test_an_unkillable_worker_does_not_block_the_job(ddprun, tmp_path):
    with FrozenRank(ddprun, tmp_path) as job:
        assert job.agent.wait(timeout=120) == 7
        errors = job.agent.stderr.read()
        assert "cannot be killed: it still exists 60 s after SIGKILL (state D" in errors, errors


def test_an_unkillable_worker_keeps_no_other_children_alive(ddprun, tmp_path):
    """The agent is killed while rank 0 is frozen in state D. The guardian must still kill the process that rank 1 has started
    in a different session."""
    group = new_group("freezer")
    script = write_script(tmp_path / "freeze.sh", f"""
if [ "$RANK" = 0 ]; then
  echo $$ > {group}/cgroup.procs
  echo frozen > {tmp_path}/ready-0
  echo FROZEN > {group}/freezer.state
else
  setsid sh -c 'echo $$ > {tmp_path}/left; trap "" TERM; while :; do sleep 1000; done' &
  while [ ! -s {tmp_path}/left ]; do sleep 0.01; done
  echo left > {tmp_path}/ready-1
fi
exec sleep 1000
""")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
    agent = subprocess.Popen([ddprun, "--nproc-per-node", "2", "--no-python", script], cwd=tmp_path, env=environment,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        frozen = group / "freezer.state"
        while not ((tmp_path / "ready-1").exists() and frozen.read_text().strip() == "FROZEN"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        left = os.pidfd_open(int((tmp_path / "left").read_text()))
        agent.kill()
        agent.wait()
        gone, _, _ = select.select([left], [], [], 60)
        os.close(left)
        still = (group / "cgroup.procs").read_text().split()
    finally:
        agent.kill()
        agent.wait()
        (group / "freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 20
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()
    assert still, "rank 0 must still be present"
    assert gone, "the processes that rank 1 left must be killed"


# ---- signals ----


class Job:
    """A running ddprun. Its workers write to one FIFO, and the test reads it."""

    def __init__(self, ddprun, tmp_path, text, *options):
        self.fifo = tmp_path / "fifo"
        os.mkfifo(self.fifo)
        script = write_script(tmp_path / "worker.sh", text)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
        self.process = subprocess.Popen([ddprun, "--nproc-per-node", "2", *options, "--no-python", script], cwd=tmp_path,
                                        env={**environment, "FIFO": str(self.fifo)}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pipe = open(self.fifo, encoding="utf-8")  # noqa: SIM115, waits for the first writer

    def read_lines(self, count):
        return sorted(self.pipe.readline().strip() for _ in range(count))

    def end(self):
        self.pipe.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def job(ddprun, tmp_path):
    jobs = []

    def start(text, *options):
        jobs.append(Job(ddprun, tmp_path, text, *options))
        return jobs[-1]

    yield start
    for one in jobs:
        one.end()


# A worker that writes a line to the FIFO for each signal. It keeps the FIFO open, so the reader does not read an end of file
# between two lines.
LISTENER = """
exec 3>"$FIFO"
trap 'echo "$RANK usr1" >&3' USR1
trap 'echo "$RANK usr2" >&3; kill $!; exit 0' USR2
trap 'echo "$RANK term" >&3; kill $!; exit 0' TERM
sleep 1000 3>&- &
echo "$RANK ready" >&3
while :; do wait; done
"""


def test_usr1_and_usr2_reach_every_worker_and_end_nothing(job):
    running = job(LISTENER)
    assert running.read_lines(2) == ["0 ready", "1 ready"]
    for _ in range(3):
        running.process.send_signal(signal.SIGUSR1)
        assert running.read_lines(2) == ["0 usr1", "1 usr1"]
    assert running.process.poll() is None
    # SIGUSR2 is not among the signals to handle, so it is only forwarded. The handler in the workers exits.
    running.process.send_signal(signal.SIGUSR2)
    assert running.read_lines(2) == ["0 usr2", "1 usr2"]
    assert running.process.wait(timeout=20) == 0


def test_a_listed_usr2_is_forwarded_and_ends_the_job(job):
    running = job(LISTENER, "--signals-to-handle", "SIGTERM,SIGUSR2", "--max-restarts", "3")
    assert running.read_lines(2) == ["0 ready", "1 ready"]
    running.process.send_signal(signal.SIGUSR1)  # SIGUSR1 is not among the signals to handle, so it is only forwarded
    assert running.read_lines(2) == ["0 usr1", "1 usr1"]
    running.process.send_signal(signal.SIGUSR2)
    assert running.read_lines(2) == ["0 usr2", "1 usr2"]
    assert running.process.wait(timeout=20) == 128 + signal.SIGUSR2


def test_an_unlisted_signal_keeps_its_default_action(job):
    running = job(LISTENER, "--signals-to-handle", "SIGINT")
    assert running.read_lines(2) == ["0 ready", "1 ready"]
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(timeout=20) == -signal.SIGTERM
