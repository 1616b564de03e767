"""Tests of Python scripts that compute on a GPU. They also test how ddprun reports the utilization of the GPU, exhausted
memory and a failed assertion in a kernel. One test restores the state of a script from memory. `./dev gpu` runs these tests.
If there is no GPU, they are skipped."""

import json
import pathlib
import re
import subprocess
import sys

import jobs
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.needs_torch_python]
ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def job(ddprun_bin, tmp_path):
    def go(body: str, *options, **env: str) -> subprocess.CompletedProcess:
        (tmp_path / "train.py").write_text("import os, sys, torch\n" + body)
        return jobs.run([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", *options, tmp_path / "train.py"], timeout=200, cwd=tmp_path,
                        **{**ENV, **env})

    return go


def test_each_gpu_gets_a_worker(job):
    count = len([p for p in pathlib.Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()])
    done = job("print('here', os.environ['WORLD_SIZE'], torch.cuda.device_count())", "--nproc-per-node", "gpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"here {count} {count}") == count


DDP = """
import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
for _ in range(3):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
torch.cuda.synchronize()
print("trained", dist.get_backend(), next(model.parameters()).grad.abs().sum().item() > 0)
dist.destroy_process_group()
"""


def test_a_ddp_script_with_nccl_finds_the_agents_store(job):
    done = job(DDP, "--nproc-per-node", "gpu")
    assert done.returncode == 0, done.stderr
    assert "trained nccl True" in done.stdout


def test_spare_interpreters_compute_on_the_gpu(job, tmp_path):
    """The spare interpreter has imported torch but has not initialized CUDA, because a forked child could not use an
    initialized CUDA context."""
    body = """
x = torch.ones(1000, device="cuda").sum().item()
print("round", os.environ["TORCHELASTIC_RESTART_COUNT"], x, os.getpid(), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    import time
    time.sleep(8)
    sys.exit(3)
"""
    done = job(body, "--nproc-per-node", 1, "--standby", 1, "--max-restarts", 1, "-v")
    assert done.returncode == 0, done.stderr
    first, second = re.findall(r"round [01] 1000.0 (\d+)", done.stdout)
    assert f"spare interpreter ready (pid {second})" in done.stderr and first != second


def test_exhausted_memory_is_named(job, tmp_path):
    body = "held = [torch.empty(2**34, dtype=torch.uint8, device='cuda') for _ in range(100)]"
    done = job(body, "--nproc-per-node", 1, "--max-restarts", 3)
    assert done.returncode == 84, done.stderr
    report = json.loads(next(tmp_path.glob("logs/*/report.json")).read_text())
    cause = report["rounds"][0]["first_cause"]
    assert cause["cause"] == "out_of_memory" and "CUDA out of memory" in json.dumps(cause)


def test_a_failed_assertion_in_a_kernel_is_the_cause(job, tmp_path):
    body = """
table = torch.zeros(4, 4, device="cuda")
print(table[torch.tensor([9], device="cuda")].sum().item())
"""
    done = job(body, "--nproc-per-node", 1)
    assert done.returncode == 1, done.stderr
    assert "device-side assert" in done.stderr


SNAPSHOTS = """
import ddprun, signal
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters())
state = ddprun.restore()
step = 0
if state:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
    print("resumed at", step, flush=True)
while step < 40:
    x = torch.randn(32, 64, device="cuda")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    assert ddprun.snapshot({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, step=step)
    if step in (11, 25) and os.environ.get("DIES") and ddprun.restart == (step > 11):
        os.kill(os.getpid(), signal.SIGKILL)
print("end", loss.item(), sum(p.abs().sum().item() for p in model.parameters()), flush=True)
"""


def test_a_script_resumes_from_the_memory_of_its_last_step(job, tmp_path):
    """The snapshot contains the weights, the optimizer moments and the random state of the GPU. The final results of a run that
    was killed twice must therefore be bit-identical to the results of an undisturbed run."""
    policy = tmp_path / "policy.json"
    policy.write_text('{"pause": {"instant_s": 0}}')
    ends = []
    for dies in ("", "1"):
        done = job(SNAPSHOTS, "--nproc-per-node", 1, "--max-restarts", 2, "--restart-policy", policy, DIES=dies, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        assert done.returncode == 0, done.stderr
        ends.append(re.search(r"end \S+ \S+", done.stdout)[0])
    assert "resumed at 11" in done.stdout and "resumed at 25" in done.stdout, done.stdout
    assert ends[0] == ends[1]


def test_gpu_use_is_reported(ddprun_bin, run, tmp_path):
    listed = run([ddprun_bin, "gpus", "--json"])
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["gpus"][0]["memory_total_bytes"] > 2**30
    (tmp_path / "train.py").write_text("import torch, time\nheld = torch.ones(2**31, dtype=torch.uint8, device='cuda')\nprint('here', flush=True)\ntime.sleep(100)\n")
    env = {"XDG_RUNTIME_DIR": str(tmp_path), **ENV}
    job = jobs.start([ddprun_bin, "--standalone", "--nproc-per-node", "1", tmp_path / "train.py"], **env)
    assert "here" in job.stdout.readline()
    done = run([ddprun_bin, "status", "--json"], **env)
    assert done.returncode == 0, done.stderr
    gpu_status = json.loads(done.stdout)["workers"][0]["gpu"]
    assert gpu_status["uuid"].startswith("GPU-") and 2**31 < gpu_status["memory_used_bytes"] <= gpu_status["memory_total_bytes"], gpu_status
    assert "GiB" in run([ddprun_bin, "status"], **env).stdout
    job.terminate()
    job.wait(timeout=30)
