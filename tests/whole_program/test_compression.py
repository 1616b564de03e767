"""Tests of gradients that are summed in 16 bits (ddp.compress). The tests show that a lost worker or an interruption does not
change any bit of the results. test_python_equivalence.py compares the losses with the losses of the communication hooks in
Python."""

import jobs
import pytest

BUCKETS = {"bucket_mb": 0.05, "first_bucket_mb": 0.01}  # small enough for several buckets


def test_compressed_sums_survive_a_lost_worker_and_an_interruption(ddprun_bin, ddptrain_bin, data, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", jobs.config(data, device="cpu", data={"train_samples": 256}, ddp=BUCKETS | {"compress": "bf16"}))
    runs = {"calm": "", "backward": "kill rank=1 step=5 phase=backward", "step": "kill rank=0 step=8"}
    for name, fault in runs.items():
        done = jobs.run([ddprun_bin, "--nproc-per-node", 3, "--run-dir", tmp_path / name, train], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
        assert [r["decision"] for r in jobs.report(tmp_path / name)["rounds"]] == (["regroup", "end"] if fault else ["end"])
        assert jobs.weights_digest(tmp_path / name) == jobs.weights_digest(tmp_path / "calm") and jobs.losses(tmp_path / name) == jobs.losses(tmp_path / "calm")
    for steps in (6, 16):
        assert jobs.run([ddprun_bin, "--nproc-per-node", 3, "--run-dir", tmp_path / "stopped", train, f"max_steps={steps}"]).returncode == 0
    assert jobs.weights_digest(tmp_path / "stopped") == jobs.weights_digest(tmp_path / "calm")
    plain = jobs.run([ddprun_bin, "--nproc-per-node", 3, "--run-dir", tmp_path / "plain", train, "ddp.compress=none"])
    assert plain.returncode == 0 and jobs.weights_digest(tmp_path / "plain") != jobs.weights_digest(tmp_path / "calm")


@pytest.mark.long
@pytest.mark.parametrize("compress", ["fp16", "bf16"])
@pytest.mark.parametrize("step", range(1, 15))
def test_a_kill_in_any_step_of_compressed_sums(ddprun_bin, ddptrain_bin, data, tmp_path, compress, step):
    train = jobs.write_config(tmp_path / "train.json", jobs.config(data, device="cpu", data={"train_samples": 256}, ddp=BUCKETS | {"compress": compress}))
    for name, fault in {"calm": "", "struck": f"kill rank={step % 3} step={step} phase=backward"}.items():
        done = jobs.run([ddprun_bin, "--nproc-per-node", 3, "--run-dir", tmp_path / name, train], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
    assert jobs.weights_digest(tmp_path / "struck") == jobs.weights_digest(tmp_path / "calm")
