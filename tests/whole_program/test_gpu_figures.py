"""Metrics that workers report about their GPU (memory and utilization), skipped steps, and batch norm over workers that share a GPU. These features
came after the first GPU runs. `./dev gpu` runs this; without a GPU these tests are skipped. DDPRUN_GPU_TESTS_ON=cpu runs them on the CPU, as a check
of the tests themselves."""

import json

import jobs
import pytest
import test_synced_batch_norm as synced
from test_gpu_models import MODELS, ON, pictures, settings, text, train  # noqa: F401
from test_python_equivalence import write_dataset

pytestmark = [] if ON == "cpu" else [pytest.mark.gpu]
MIB = 1 << 20


def test_memory_and_operations_of_the_gpu_are_told(ddprun_bin, pictures, text, tmp_path):  # noqa: F811
    """The peak is that of the GPU's tensors and not of the process, which needs 1 GB or more on a GPU. It grows with the batch; most of it belongs to
    cuBLAS."""
    peaks = {}
    for micro_batch in (1, 16):
        run = train(ddprun_bin, tmp_path / str(micro_batch), settings(MODELS["gpt"], pictures, text, micro_batch_size=micro_batch, precision="bf16"))
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


def test_a_step_that_is_not_finite_changes_nothing(ddprun_bin, tmp_path):
    skipping = pytest.importorskip("test_skipped_steps")  # that module needs safetensors
    for where in {ON, "cpu"}:
        given = skipping.config(tmp_path, bad={40}, device=where)
        skipping.train(ddprun_bin, tmp_path / where, given, workers=1)
    on_device = skipping.skipped(tmp_path / ON)
    assert on_device == skipping.skipped(tmp_path / "cpu") and on_device[-1] == 1
    skipping.assert_unchanged(tmp_path / ON, on_device.index(1) + 1, "model", "optimizer", "average")


def test_two_workers_that_share_the_gpu_train_as_one_with_synced_batch_norm(ddprun_bin, tmp_path):
    write_dataset(tmp_path / "pictures", 53, 12)
    losses = {}
    for name, workers, model in (("alone", 1, synced.PLAIN), ("synced", 2, synced.SYNCED), ("apart", 2, synced.PLAIN)):
        config = jobs.config(tmp_path / "pictures", **{**synced.SHORT, "model": model, "max_steps": 7, "deterministic": True})
        losses[name] = jobs.losses(train(ddprun_bin, tmp_path / name, config, workers=workers, DDPTRAIN_SHARE_GPU="1"))
    # Other kernels round differently, and batch norm enlarges the difference from step to step.
    assert synced.off(losses["synced"], losses["alone"]) < 5e-3
    assert synced.off(losses["apart"], losses["alone"]) > 0.01
