"""Tests of `ddprun doctor` and --preflight with defects that this machine can really have. The unit tests in
tests/launcher/doctor test the verdicts. This file tests that each kind of observation finds one real defect."""

import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import time

import disks
import jobs
import jsonschema
import node_agents
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schemas/doctor.schema.json").read_text(encoding="utf-8"))

# A replacement for NVML with two healthy GPUs. $NVML_DOES selects a fault.
NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static long devices[2];
static int number_of(void *device) { return device == &devices[1]; }
static int does(const char *fault) { const char *what = getenv("NVML_DOES"); return what && !strcmp(what, fault); }
int nvmlInit_v2(void) {
  puts("a library that prints a line");
  fflush(stdout);
  if (does("crash")) abort();
  if (does("wait")) for (;;) pause();
  return 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = &devices[index], 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { return snprintf(text, size, "GPU-%d", number_of(device)), 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { return snprintf(text, size, "Model T"), 0; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  memory->total = 80ull << 30;
  memory->used = (does("use") && number_of(device) ? 40ull : 0ull) << 30;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
  return *count = does("ecc") && type == 1 && counter == 0 && number_of(device) ? 3 : 0, 0;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
  return *corrected = *uncorrected = *pending = 0, *failed = does("remap") && number_of(device), 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending) { return *pending = does("pages") && number_of(device), 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits) { return *bits = does("heat") && number_of(device) ? 0x40 : 1, 0; }
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active) {
  if (link >= 12) return 2; /* not supported */
  return *active = !(does("link") && number_of(device) && link == 5), 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *mode, unsigned *pending) { return *mode = does("mig") && number_of(device), *pending = 0, 0; }
"""


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory) -> dict[str, str]:
    """Returns environment variables that give ddprun a replacement of NVML."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def config(data, tmp_path) -> pathlib.Path:
    return jobs.write_config(tmp_path / "train.json", jobs.config(data, device="cpu", epochs=1))


@pytest.fixture
def python_script(tmp_path) -> pathlib.Path:
    path = tmp_path / "train.py"
    path.write_text("print('trained')\n")
    return path


@pytest.fixture(autouse=True)
def large_shared_memory():
    shared = os.statvfs("/dev/shm")
    if shared.f_blocks * shared.f_frsize <= 64 << 20:
        pytest.skip("needs more than 64 MiB of /dev/shm, about which the doctor warns")


@pytest.fixture
def examine(ddprun_bin, tmp_path):
    """Returns examine(*arguments), which runs the quick doctor and returns its findings: the checks that are not ok."""

    def examine(*arguments, wrapper=(), **environment):
        command = [*wrapper, ddprun_bin, "doctor", "--quick", "--json", *arguments]
        done = jobs.run(command, cwd=tmp_path, PYTHON_EXEC=sys.executable, **environment)
        checks = [json.loads(line) for line in done.stdout.splitlines()]
        assert checks and done.stderr == "", done
        for check in checks:
            jsonschema.validate(check, SCHEMA)
        findings = [check for check in checks if check["verdict"] != "ok"]
        # If /tmp of this machine is in memory, the run directory of a test is in memory too. The doctor reports this, so the
        # finding is removed.
        findings = [check for check in findings if not check["found"].startswith(f"{tmp_path} is in memory")]
        assert done.returncode == (1 if any(check["verdict"] == "error" for check in findings) else 0)
        return findings

    return examine


def only(findings: list[dict], check: str, verdict: str) -> str:
    """Returns the text of the only finding. The finding must have this check and this verdict."""
    assert [(one["check"], one["verdict"]) for one in findings] == [(check, verdict)], findings
    return findings[0]["found"]


def with_limits(**limits: tuple[int, int]) -> list[str]:
    """Returns a command prefix that sets resource limits."""
    calls = ";".join(f"resource.setrlimit(resource.RLIMIT_{name}, {pair})" for name, pair in limits.items())
    return [sys.executable, "-c", f"import os, resource, sys; {calls}; os.execv(sys.argv[1], sys.argv[1:])"]


def in_own_mounts(commands: str) -> list[str]:
    """Returns a command prefix that runs shell commands in a private mount namespace first."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs permission to create a mount namespace")
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", f'{commands} && exec "$@"', "sh"]


def test_a_healthy_machine_has_no_findings(examine, config, python_script):
    for _ in range(3):
        assert examine() == []
        assert examine("--nproc-per-node", 2, config) == []
        assert examine("--nproc-per-node", 2, python_script, "--lr", "0.1", "--json") == []


def test_the_full_examination_reads_data_and_starts_ddptrain(ddprun_bin, ddptrain_bin, config, tmp_path):
    done = jobs.run([ddprun_bin, "doctor", "--run-dir", tmp_path / "run", config])
    assert done.returncode == 0, done.stdout
    assert "\n0 errors, " in done.stdout and "\nok       data               read " in done.stdout
    assert "/ddptrain: ddptrain 0." in done.stdout, done.stdout
    assert not (tmp_path / "run").exists() and [path.name for path in tmp_path.iterdir()] == ["train.json"]


@pytest.mark.needs_torch_python
def test_the_full_examination_imports_torch(ddprun_bin, python_script, tmp_path):
    import torch

    done = jobs.run([ddprun_bin, "doctor", python_script], PYTHON_EXEC=sys.executable)
    assert f"\nok       torch              {torch.__version__}\n" in done.stdout, done.stdout
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.13 is missing')")
    broken = jobs.run([ddprun_bin, "doctor", "--json", python_script], PYTHON_EXEC=sys.executable, PYTHONPATH=str(tmp_path))
    checks = [json.loads(line) for line in broken.stdout.splitlines()]
    assert broken.returncode == 1 and "libcudart.so.13" in next(c["found"] for c in checks if c["check"] == "torch")


def test_programs_do_not_inherit_the_token(ddprun_bin, python_script, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nenv >{tmp_path}/environment\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    token = "a-secret-token-of-this-test-0123456789abcdef"
    done = jobs.run([ddprun_bin, "doctor", "--quick", python_script], PYTHON_EXEC=str(python), DDPRUN_TOKEN=token)
    environment = (tmp_path / "environment").read_text()
    assert done.returncode == 0 and "PYTHON_EXEC" in environment and token not in environment + done.stdout


def test_wrong_options_have_exit_code_2(ddprun_bin, config):
    for wrong in ("--quik", "--json=x", "--nnodes"):
        assert jobs.run([ddprun_bin, "doctor", wrong]).returncode == 2, wrong
    assert jobs.run([ddprun_bin, "doctor", "--quick", "--nnodes", 0]).returncode == 1  # a value that a start would refuse
    for job in ([], [config]):
        for workers in ("x", "0", "1.5"):
            done = jobs.run([ddprun_bin, "doctor", "--quick", "--nproc-per-node", workers, *job])
            assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done
            assert "--nproc-per-node: expected a" in done.stderr and f"but got '{workers}'" in done.stderr, done
        assert jobs.run([ddprun_bin, "doctor", "--quick", "--nproc-per-node", "cpu", *job]).returncode == 0
    assert "--quick  at most 3 seconds" in jobs.run([ddprun_bin, "doctor", "--help"]).stdout
    assert "--quick  at most 3 seconds" in jobs.run([ddprun_bin, "doctor", "--nnodes", 2, "--help"]).stdout
    assert "data" in jobs.run([ddprun_bin, "doctor", config, "--quick"]).stdout  # options may follow a train.json


def test_limits(examine, config):
    assert "hard limit is 64" in only(examine("--nproc-per-node", 4, config, wrapper=with_limits(NOFILE=(64, 64))), "open-files", "error")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert "soft limit is 512" in only(examine(config, wrapper=with_limits(NOFILE=(512, hard))), "open-files", "warning")
    assert "OMP_NUM_THREADS=many" in only(examine(config, OMP_NUM_THREADS="many"), "threads", "warning")


def test_without_descriptors_the_doctor_still_reports(examine):
    findings = examine(wrapper=with_limits(NOFILE=(8, 8)))
    assert findings and all(finding["verdict"] == "error" and "ulimit -n" in finding["do"] for finding in findings), findings


def test_a_small_shared_memory(examine, python_script):
    full = in_own_mounts("mount -t tmpfs -o size=8m none /dev/shm")
    assert "8 MiB free of 8 MiB" in only(examine(python_script, wrapper=full), "shared-memory", "error")
    default = in_own_mounts("mount -t tmpfs -o size=64m none /dev/shm")
    assert "SIGBUS" in only(examine(python_script, wrapper=default), "shared-memory", "warning")
    assert examine(wrapper=default) == []


def test_missing_data_is_found_by_every_command(ddprun_bin, ddptrain_bin, examine, config, tmp_path):
    missing = f"data.dir={tmp_path}/absent"
    assert f"data.dir: {tmp_path}/absent does not exist" in only(examine(config, missing), "data", "error")
    for command in (["validate", config, missing], ["--dry-run", config, missing]):
        done = jobs.run([ddprun_bin, *command])
        assert done.returncode == 2 and f"data.dir: {tmp_path}/absent does not exist" in done.stderr


def test_a_wrong_config_or_command(examine, config, tmp_path):
    assert "unknown key 'epoch'" in only(examine(config, "epoch=3"), "job", "error")
    assert "cannot read script" in only(examine(tmp_path / "absent.py"), "job", "error")


def test_run_directories(examine, config, tmp_path):
    (tmp_path / "file").touch()
    assert "is not a folder" in only(examine("--run-dir", tmp_path / "file/run", config), "run-directory", "error")
    with disks.small_disk(tmp_path / "disk", "600m") as disk:
        run = ["--run-dir", disk / "deep/run", config]
        assert "is in memory" in only(examine(*run), "run-directory", "warning")
        (disk / "filler").write_bytes(bytes(590 << 20))
        # The disk is nearly full (error), and it is in memory (warning).
        assert {one["verdict"] for one in examine(*run)} == {"warning", "error"}
        (disk / "filler").unlink()
        assert list(disk.iterdir()) == []  # the doctor removes its files
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert "Read-only file system" in only(examine(*run), "run-directory", "error")


def test_a_folder_for_temporary_files_that_is_missing(examine, config, tmp_path):
    (tmp_path / "file").touch()
    assert "not a folder" in only(examine(config, TMPDIR=str(tmp_path / "file")), "temporary-folder", "error")


def test_a_server_that_does_not_answer(examine, config, tmp_path):
    with disks.stalling_disk(tmp_path / "disk") as disk:
        disk.freeze()
        try:
            begin = time.monotonic()
            findings = examine("--run-dir", disk.folder / "run", config)
            took = time.monotonic() - begin
        finally:
            disk.thaw()
        assert "a write did not finish in time" in only(findings, "run-directory", "error")
        assert took < 20  # the limit is 3 s; if the doctor waited for the disk, it would never end


def test_a_port_in_use(examine, config):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert f"master port {port} is in use" in only(examine("--master-port", port, config), "port", "error")


def test_a_local_dir_that_cannot_be_written(examine, config, tmp_path):
    (tmp_path / "file").touch()
    assert "not a folder" in only(examine(config, f"checkpoint.local_dir={tmp_path}/file/copies"), "local-copies", "error")


def test_interfaces(examine, config, python_script):
    assert "no interface wrong7" in only(examine(config, GLOO_SOCKET_IFNAME="wrong7"), "interface", "error")
    assert "NCCL_SOCKET_IFNAME=wrong" in only(examine(python_script, NCCL_SOCKET_IFNAME="wrong"), "interface", "warning")
    assert examine(config, GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="^docker") == []


def test_the_address_of_the_first_node(examine, config):
    several = ["--nnodes", 2, "--interface", "lo"]
    findings = examine(*several, "--master-addr", "no-such-host.invalid", config)
    assert ("master-address", "error") in [(one["check"], one["verdict"]) for one in findings], findings
    # The name of the first pod may appear after this pod has started.
    findings = examine(*several, "--master-addr", "train-0.no-such-service", "--rdzv-conf", "join_timeout=60", config)
    found = next(one for one in findings if one["check"] == "master-address")
    assert found["verdict"] == "warning" and "does not resolve yet" in found["found"] and "up to 60 s" in found["do"], findings
    findings = examine("--master-addr", "127.0.0.1", config, PET_NNODES="2")  # variables count, as in an init container
    assert ("master-address", "warning") in [(one["check"], one["verdict"]) for one in findings], findings


def test_a_name_server_that_does_not_answer(examine, config, tmp_path):
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    library = tmp_path / "silent_resolver.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, pathlib.Path(__file__).with_name("silent_resolver.c"), "-ldl"], check=True)
    (tmp_path / "silent").touch()
    silent = {"LD_PRELOAD": str(library), "SILENT_RESOLVER_FILE": str(tmp_path / "silent")}
    findings = {one["check"]: one["found"] for one in examine("--nnodes", 2, "--interface", "lo", "--master-addr", "far-away.test", config, **silent)}
    for check in ("host-name", "master-address"):
        assert "the resolver did not answer" in findings[check], findings


def test_a_plan_that_needs_a_driver_that_does_not_answer(examine, python_script, two_gpus):
    found = only(examine("--nproc-per-node", "gpu", python_script, NVML_DOES="wait", **two_gpus), "job", "warning")
    assert "the job's plan could not be computed in time" in found


def test_gpus_that_do_not_exist(examine, python_script, two_gpus):
    two = ["--nproc-per-node", 2, python_script]
    assert examine(*two, **two_gpus) == []
    assert "'9' is not a GPU of this machine, which has 2 GPUs" in only(examine(*two, CUDA_VISIBLE_DEVICES="0,9", **two_gpus), "visible-devices", "error")
    assert "named twice" in only(examine(*two, CUDA_VISIBLE_DEVICES="GPU-1,GPU-1", **two_gpus), "visible-devices", "error")
    assert "invalid device ordinal" in only(examine("--nproc-per-node", 3, python_script, **two_gpus), "visible-devices", "error")
    assert examine("--nproc-per-node", 3, python_script, CUDA_VISIBLE_DEVICES="", **two_gpus) == []


def test_workers_without_any_gpu(examine, python_script, config):
    if pathlib.Path("/dev/nvidia0").exists():
        pytest.skip("needs a machine without a GPU")
    assert examine("--nproc-per-node", 5, python_script) == []
    assert examine("--nproc-per-node", 5, config, "device=auto") == []
    assert "more workers than GPUs" in only(examine("--nproc-per-node", 5, config, "device=cuda"), "job", "error")


@pytest.mark.parametrize(("fault", "check", "verdict", "text"), [("ecc", "gpu-health", "warning", "GPU 1 has had 3 uncorrected"),
                                                                  ("remap", "gpu-health", "error", "GPU 1 could not replace"),
                                                                  ("pages", "gpu-health", "warning", "GPU 1 has a defective row or page"),
                                                                  ("heat", "gpu-health", "warning", "GPU 1 runs slower now because of its temperature"),
                                                                  ("link", "gpu-health", "warning", "GPU 1 has 11 active NVLinks"),
                                                                  ("use", "gpu-memory", "warning", "GPU 1 is in use: 40 GiB of 80 GiB"),
                                                                  ("mig", "visible-devices", "error", "GPU 1 is in MIG mode"),
                                                                  ("crash", "gpus", "warning", "SIGABRT"),
                                                                  ("wait", "gpus", "warning", "did not answer")])
def test_faults_of_gpus(examine, python_script, two_gpus, fault, check, verdict, text):
    findings = examine("--nproc-per-node", 2, python_script, NVML_DOES=fault, **two_gpus)
    assert text in only(findings, check, verdict)


def test_preflight_refuses_a_job(ddprun_bin, ddptrain_bin, config, tmp_path):
    run = ["--run-dir", tmp_path / "run", config]
    refused = jobs.run([ddprun_bin, "--preflight", *run, f"data.dir={tmp_path}/absent"], GLOO_SOCKET_IFNAME="wrong7")
    assert refused.returncode == 2, refused.stderr
    for text in ("the job was not started, because --preflight found errors", "interface: GLOO_SOCKET_IFNAME=wrong7", "absent does not exist", "    do: "):
        assert text in refused.stderr, refused.stderr
    assert not (tmp_path / "run").exists()


def test_preflight_starts_a_healthy_job(ddprun_bin, python_script):
    started = jobs.run([ddprun_bin, "--preflight", python_script], PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="many")
    assert started.returncode == 0 and started.stdout == "trained\n", started
    assert "warning: preflight: threads: OMP_NUM_THREADS=many" in started.stderr


def test_a_node_that_fails_its_preflight_does_not_join(nodes, script):
    common = ["--preflight", "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{jobs.free_port()}", "--rdzv-id", "j"]
    job = script('echo "$WORLD_SIZE" >$OUT/world')
    bad = nodes.start(*common, "--rdzv-conf", "is_host=false", job, GLOO_SOCKET_IFNAME="wrong7")
    assert bad.wait(timeout=node_agents.PATIENCE) == 2, nodes.all_text()
    assert "this machine has no interface wrong7" in nodes.text(0)
    good = nodes.start(*common, "--rdzv-conf", "is_host=true", job)
    assert good.wait(timeout=node_agents.PATIENCE) == 0, nodes.all_text()
    assert (nodes.folder / "out" / "world").read_text() == "1\n"
