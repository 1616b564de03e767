"""Tests that `ddprun status` and `ddprun top` show the GPU utilization of the workers. The tests need no GPU, because a small
library replaces NVML."""

import json
import pathlib
import re
import shutil
import subprocess

import jobs
import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schemas/status.schema.json").read_text(encoding="utf-8"))

# A replacement for NVML with two devices. Each process that loads it appends a line to $NVML_LOG. $NVML_DOES selects a fault:
# "crash" aborts the process, "wait" never returns, and "fail" returns an error.
NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static long devices[2];
static int number_of(void *device) { return device == &devices[1]; }
int nvmlInit_v2(void) {
  const char *what = getenv("NVML_DOES");
  FILE *log = fopen(getenv("NVML_LOG"), "a");
  fprintf(log, "%d\n", (int)getpid());
  fclose(log);
  puts("a library that prints a line");
  if (what && !strcmp(what, "crash")) abort();
  if (what && !strcmp(what, "wait")) for (;;) pause();
  return what && !strcmp(what, "fail") ? 9 : 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = &devices[index], 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { return snprintf(text, size, "GPU-%d", number_of(device)), 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return *device = &devices[uuid[4] - '0'], 0; }
struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *use) { return use->gpu = number_of(device) ? 7 : 93, use->memory = 1, 0; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  memory->total = 80ull << 30;
  memory->used = (number_of(device) ? 12ull : 40ull) << 30;
  return 0;
}
struct process { unsigned pid; unsigned long long used; unsigned instances[2]; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
  const char *pids = getenv("NVML_PIDS"); /* a file: "DEVICE PID" lines */
  FILE *file = pids ? fopen(pids, "r") : NULL;
  int on;
  unsigned pid, found = 0;
  while (file && fscanf(file, "%d %u", &on, &pid) == 2)
    if (on == number_of(device) && found < *count) processes[found++].pid = pid;
  if (file) fclose(file);
  return *count = found, 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True)
    return folder


class Waiting:
    """Starts a job with two workers that wait."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path, library: pathlib.Path | None, *options: str, **env: str):
        self.ddprun, self.folder = ddprun, folder
        self.log = folder / "nvml.log"
        more = {"LD_LIBRARY_PATH": str(library)} if library else {}
        self.environment = jobs.clean_environment(XDG_RUNTIME_DIR=str(folder), NVML_LOG=str(self.log), NVML_PIDS=str(folder / "pids"), **more, **env)
        self.job = subprocess.Popen([ddprun, "--standalone", "--nproc-per-node", "2", *options, "--no-python", "sh", "-c", "echo here; exec sleep 100"],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=self.environment)
        while (line := self.job.stdout.readline()).strip() != "here":
            assert line, "the job ended"

    def query(self, *words: str) -> str:
        """Runs a ddprun command that queries the agent, and returns its output. Retries until the agent's socket exists, which
        takes about a tenth of a second."""
        while True:
            done = subprocess.run([self.ddprun, *words], capture_output=True, text=True, timeout=60, cwd=self.folder,
                                  env=jobs.clean_environment(XDG_RUNTIME_DIR=str(self.folder)))
            if "none of your jobs is running" not in done.stderr:
                assert done.returncode == 0, done.stderr
                return done.stdout

    def gpus(self) -> list:
        status = json.loads(self.query("status", "--json"))
        jsonschema.validate(status, SCHEMA)
        return [worker["gpu"] for worker in sorted(status["workers"], key=lambda worker: worker["rank"])]

    def pids(self) -> list[int]:
        return [worker["pid"] for worker in sorted(json.loads(self.query("status", "--json"))["workers"], key=lambda worker: worker["rank"])]

    def starts(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def close(self):
        self.job.kill()
        self.job.wait()
        self.job.stdout.close()


@pytest.fixture
def start(ddprun_bin, tmp_path):
    started = []

    def start(library, *options, **env) -> Waiting:
        started.append(Waiting(ddprun_bin, tmp_path, library, *options, **env))
        return started[-1]

    yield start
    for job in started:
        job.close()


def device(number: int, percent: int, used: int) -> dict:
    return {"uuid": f"GPU-{number}", "percent": percent, "memory_used_bytes": used << 30, "memory_total_bytes": 80 << 30}


FIRST, SECOND = device(0, 93, 40), device(1, 7, 12)


def test_the_gpu_of_a_rank_is_reported(start, library):
    job = start(library)
    assert job.starts() == 0  # the agent loads the NVML library only for a query
    assert job.gpus() == [FIRST, SECOND]
    text = job.query("status")
    assert re.search(r"(?m)^RANK +PID +STATE +STEP +SILENT +MEMORY +GPU$", text), text
    assert re.search(r"(?m)^0 .*  93 %, 40\.0 of 80\.0 GiB$", text) and re.search(r"(?m)^1 .*  7 %, 12\.0 of 80\.0 GiB$", text), text
    # For each of the two queries, a separate process loaded NVML. The agent itself did not load NVML.
    assert job.starts() == 2 and str(job.job.pid) not in job.log.read_text().split()
    assert "libnvidia" not in pathlib.Path(f"/proc/{job.job.pid}/maps").read_text()


def test_the_gpu_a_worker_uses_is_reported(start, library, tmp_path):
    job = start(library)
    pids = job.pids()
    (tmp_path / "pids").write_text(f"1 {pids[0]}\n0 {pids[1]}\n")
    assert job.gpus() == [SECOND, FIRST]


def test_only_visible_gpus_are_reported(start, library):
    job = start(library, CUDA_VISIBLE_DEVICES="GPU-1")
    assert job.gpus() == [SECOND, None]


@pytest.mark.parametrize("does", ["crash", "wait", "fail"])
def test_a_failing_nvml_is_harmless(start, library, does):
    """NVML crashes, does not return, or reports an error. The agent and its job must continue, and the status must be printed
    without GPUs after at most two seconds."""
    job = start(library, NVML_DOES=does)
    assert job.gpus() == [None, None]
    assert "GPU" not in job.query("status").split("\n", 1)[1]
    assert job.job.poll() is None


def test_no_gpu_is_reported_without_a_driver(start, ddprun_bin, run, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")  # hides the library of this machine, if there is one
    job = start(tmp_path)
    assert job.gpus() == [None, None] and job.gpus() == [None, None]  # the second query must not try to load NVML again
    message = "no information about GPUs: NVML (libnvidia-ml.so.1) is not installed or does not answer\n"
    assert run([ddprun_bin, "gpus"], LD_LIBRARY_PATH=str(tmp_path)).stdout == message


def test_gpus_in_readable_form(ddprun_bin, run, library, tmp_path):
    env = {"LD_LIBRARY_PATH": str(library), "NVML_LOG": str(tmp_path / "log")}

    def reported(**more: str) -> list[str]:
        return [line for line in run([ddprun_bin, "gpus"], **env, **more).stdout.splitlines() if line != "a library that prints a line"]

    assert reported() == ["0  GPU-0  93 %, 40.0 of 80.0 GiB", "1  GPU-1  7 %, 12.0 of 80.0 GiB"]
    assert reported(CUDA_VISIBLE_DEVICES="1") == ["0  GPU-1  7 %, 12.0 of 80.0 GiB"]
    assert reported(CUDA_VISIBLE_DEVICES="") == ["no GPU is visible to CUDA on this machine"]


def test_gpus_of_all_nodes_are_reported(nodes, library, tmp_path):
    port = jobs.free_port()
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "LD_LIBRARY_PATH": str(library), "NVML_LOG": str(tmp_path / "log")}
    for node, visible in (("0", "0"), ("1", "1")):
        nodes.start("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node, "--no-python", "sh", "-c",
                    "echo here; exec sleep 100", CUDA_VISIBLE_DEVICES=visible, **env)
    for node in (0, 1):
        nodes.until_printed(node, "here")
    query = [str(nodes.ddprun), "status", str(nodes.agents[1].pid), "--json"]

    def reported():
        done = subprocess.run(query, capture_output=True, text=True, env=jobs.clean_environment(XDG_RUNTIME_DIR=str(tmp_path)))
        answered = json.loads(done.stdout)["job"]["nodes"] if done.returncode == 0 else []
        return answered if len(answered) == 2 else None

    gpus = {node["node_rank"]: [worker["gpu"] for worker in node["workers"]] for node in nodes.until(reported, "both nodes' status")}
    assert gpus == {0: [FIRST], 1: [SECOND]}
