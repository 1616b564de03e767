"""Tests of the metrics that workers report about their GPU (memory and utilization), of skipped steps, and of batch norm over
workers that share a GPU. `./dev gpu` runs these tests. If there is no GPU, they are skipped. With DDPRUN_GPU_TESTS_ON=cpu they
run on the CPU, to check the tests themselves."""

import json

import jobs
import pytest
import test_synced_batch_norm as synced
from test_gpu_models import MODELS, ON, images, settings, text, train  # noqa: F401
from test_python_equivalence import write_dataset

pytestmark = [] if ON == "cpu" else [pytest.mark.gpu]
MIB = 1 << 20


def test_gpu_memory_and_operations_are_reported(ddprun_bin, images, text, tmp_path):  # noqa: F811
    """The reported peak must be the GPU memory of the tensors. The memory of the process is larger: 1 GB or more on a GPU. The
    peak must grow with the batch size, even though the workspace of cuBLAS takes most of the memory."""
    peaks = {}
    for micro_batch in (1, 16):
        run = train(ddprun_bin, tmp_path / str(micro_batch), settings(MODELS["gpt"], images, text, micro_batch_size=micro_batch, precision="bf16"))
        lines = jobs.metrics(run, "step")
        used = [line["peak_memory_bytes"] for line in lines]
        assert used == sorted(used) and used == [line["largest_peak_memory_bytes"] for line in lines]
        peaks[micro_batch] = used[-1]
        device = json.loads((run / "checkpoints/latest/manifest.json").read_text())["device"]
        known = next((peak for name, peak in (("H200", 989e12), ("H100", 989e12)) if name in device and "NVL" not in device and "PCIe" not in device), None)
        for line in lines:
            assert line["flops_per_s"] > 0
            assert ("mfu" in line) == ("mfu" in lines[0])
            if known:
                assert line["mfu"] == pytest.approx(line["flops_per_s"] / known, rel=1e-6) and line["mfu"] < 1
    if ON == "cuda":
        assert MIB < peaks[1] < peaks[16] < 200 * MIB, peaks


def test_a_non_finite_step_changes_nothing(ddprun_bin, tmp_path):
    skipping = pytest.importorskip("test_skipped_steps")  # importing that module requires safetensors
    for where in {ON, "cpu"}:
        given = skipping.config(tmp_path, bad={40}, device=where)
        skipping.train(ddprun_bin, tmp_path / where, given, workers=1)
    on_device = skipping.skipped(tmp_path / ON)
    assert on_device == skipping.skipped(tmp_path / "cpu") and on_device[-1] == 1
    skipping.assert_unchanged(tmp_path / ON, on_device.index(1) + 1, "model", "optimizer", "average")


def test_two_workers_sharing_a_gpu_match_one_with_synced_batch_norm(ddprun_bin, tmp_path):
    write_dataset(tmp_path / "images", 53, 12)
    losses = {}
    for name, workers, model in (("alone", 1, synced.PLAIN), ("synced", 2, synced.SYNCED), ("apart", 2, synced.PLAIN)):
        config = jobs.config(tmp_path / "images", **{**synced.SHORT, "model": model, "max_steps": 7, "deterministic": True})
        losses[name] = jobs.losses(train(ddprun_bin, tmp_path / name, config, workers=workers, DDPTRAIN_SHARE_GPU="1"))
    # One worker and two workers use different kernels, which round differently. Batch norm amplifies the difference in each
    # step.
    assert synced.off(losses["synced"], losses["alone"]) < 5e-3
    assert synced.off(losses["apart"], losses["alone"]) > 0.01
