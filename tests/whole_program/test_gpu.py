"""Tests that need an NVIDIA GPU. `./dev gpu` runs these tests. On machines without a GPU they are skipped."""

import json
import pathlib
import subprocess
import sys

import jobs
import pytest

GPUS = len([p for p in pathlib.Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()])
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPUS == 0, reason="no NVIDIA GPU on this machine")]


def train(ddprun, folder, dataset, workers, fault="", environment=None, options=(), **changes):
    folder.mkdir(exist_ok=True)
    config = jobs.write_config(folder / "train.json", jobs.config(dataset, device="cuda", **changes))
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", folder / "run", *options, config], timeout=300, DDPTRAIN_FAULT=fault,
                    **(environment or {}))
    return done, folder / "run"


def test_one_worker_trains_on_the_gpu_without_losing_samples(ddprun_bin, data, tmp_path):
    done, calm = train(ddprun_bin, tmp_path / "calm", data, 1, model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    done, struck = train(ddprun_bin, tmp_path / "struck", data, 1, "kill rank=0 step=17", model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    assert [s for s, _ in jobs.losses(struck)] == list(range(1, 41))
    assert jobs.losses(struck)[-1][1] == pytest.approx(jobs.losses(calm)[-1][1], rel=1e-3)
    jobs.assert_each_sample_once(struck, 2)


# With "fp32", ddptrain must also compute convolutions in full float32. By default PyTorch allows TF32 for convolutions, and
# then the results of the cnn would differ by more than this test allows.
@pytest.mark.parametrize("model", [{"type": "mlp", "hidden": [32]}, {"type": "cnn"}], ids=lambda model: model["type"])
def test_gpu_and_cpu_agree(ddprun_bin, data, tmp_path, model):
    slow = {"optimizer": {"type": "sgd", "lr": 0.005}, "epochs": 1, "clip_grad_norm": 0.5, "model": model,
            "data": {"augment": {"crop_padding": 2, "flip": True}}}
    done, gpu = train(ddprun_bin, tmp_path / "gpu", data, 1, **slow)
    assert done.returncode == 0, done.stderr
    config = jobs.write_config(tmp_path / "cpu.json", jobs.config(data, device="cpu", **slow))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "cpu", config])
    assert done.returncode == 0, done.stderr
    for (_, a), (_, b) in zip(jobs.losses(gpu), jobs.losses(tmp_path / "cpu"), strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    on_gpu, on_cpu = (jobs.metrics(run, "eval")[-1] for run in (gpu, tmp_path / "cpu"))
    assert on_gpu["samples"] == on_cpu["samples"] and on_gpu["loss"] == pytest.approx(on_cpu["loss"], rel=1e-3)


@pytest.mark.parametrize("precision, channels_last", [("tf32", False), ("bf16", False), ("bf16", True)])
def test_each_precision_learns_what_fp32_does(ddprun_bin, data, tmp_path, precision, channels_last):
    small = {"model": {"type": "resnet18"}, "epochs": 1, "optimizer": {"type": "sgd", "lr": 0.01}}
    done, exact = train(ddprun_bin, tmp_path / "fp32", data, 1, **small)
    assert done.returncode == 0, done.stderr
    done, rounded = train(ddprun_bin, tmp_path / "rounded", data, 1, precision=precision, channels_last=channels_last, **small)
    assert done.returncode == 0, done.stderr
    for (step, a), (_, b) in zip(jobs.losses(exact), jobs.losses(rounded), strict=True):
        assert b == pytest.approx(a, rel=0.1), f"step {step}"
    manifest = json.loads((rounded / "checkpoints/latest/manifest.json").read_text())
    assert manifest["precision"] == precision + (" channels_last" if channels_last else "") and manifest["device"] != "cpu"


def test_resuming_a_gpu_run_on_the_cpu_is_reported(ddprun_bin, data, tmp_path):
    done, run_dir = train(ddprun_bin, tmp_path / "run", data, 1, max_steps=5)
    assert done.returncode == 0, done.stderr
    config = jobs.write_config(tmp_path / "cpu.json", jobs.config(data, device="cpu", max_steps=8))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", run_dir, config])
    assert done.returncode == 0, done.stderr
    assert "device: cpu instead of" in done.stdout + done.stderr


def test_the_end_prints_no_warning(ddprun_bin, data, tmp_path):
    done, _ = train(ddprun_bin, tmp_path / "end", data, GPUS, max_steps=3)
    assert done.returncode == 0 and "destroy_process_group" not in done.stdout + done.stderr


def test_two_ranks_share_one_gpu_through_gloo(ddprun_bin, data, tmp_path):
    done, run_dir = train(ddprun_bin, tmp_path / "shared", data, 2, environment={"DDPTRAIN_SHARE_GPU": "1"})
    assert done.returncode == 0, done.stderr
    jobs.assert_each_sample_once(run_dir, 2)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_two_gpus_with_nccl_survive_a_killed_worker(ddprun_bin, data, tmp_path):
    done, run_dir = train(ddprun_bin, tmp_path / "two", data, 2, "kill rank=1 step=17", model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    jobs.assert_each_sample_once(run_dir, 2)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_a_surviving_gpu_worker_keeps_its_state(ddprun_bin, data, tmp_path):
    """Live recovery on GPUs (through NCCL) stays off by default until this test has passed on two GPUs."""
    done, run_dir = train(ddprun_bin, tmp_path / "live", data, 2, "kill rank=1 step=17", options=["--recovery", "live"], model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    assert "rank 1 is replaced" in done.stderr and "rank 0 kept step" in done.stdout + done.stderr
    jobs.assert_each_sample_once(run_dir, 2)


def test_more_workers_than_gpus_is_refused(ddprun_bin, data, tmp_path):
    done, _ = train(ddprun_bin, tmp_path / "many", data, GPUS + 1)
    assert done.returncode == 2
    assert str(GPUS + 1) in done.stderr and "GPU" in done.stderr


def test_out_of_memory_is_reported(ddprun_bin, data, tmp_path):
    huge = {"model": {"type": "mlp", "hidden": [400000, 400000]}, "epochs": 1}  # this model has 640 GB of weights
    done, run_dir = train(ddprun_bin, tmp_path / "huge", data, 1, **huge)
    assert done.returncode == 84, done.stderr
    assert jobs.report(run_dir)["rounds"][0]["first_cause"]["cause"] == "out_of_memory"


HOLDER = """
import sys, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]) * 2**20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_real_out_of_memory_shrinks_the_micro_batch(ddprun_bin, data, tmp_path):
    """Another process leaves only 3 GiB of the GPU's memory free. A pass of 640 images through ResNet-18 needs more memory."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, "3072"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if holder.stdout.readline() != "held\n":
            pytest.skip("Python's torch does not start on this machine, so it cannot fill the rest of the GPU memory")
        done, run_dir = train(ddprun_bin, tmp_path / "tight", data, 1, model={"type": "resnet18"}, batch_size=640, epochs=2)
    finally:
        holder.stdin.close()
        holder.wait()
    assert done.returncode == 0, done.stderr
    assert jobs.report(run_dir)["rounds"][0]["first_cause"]["cause"] == "out_of_memory"
    assert 0 < json.loads((run_dir / "memory-fit.json").read_text())["micro_batch_size"] < 640
    jobs.assert_each_sample_once(run_dir, 2)
