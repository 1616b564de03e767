"""Tests of the time of each part of a step. In a real job the parts must add up to the time of the step, and `ddprun report`
must show them."""

import json
import pathlib
import resource
import sys

import jobs
import jsonschema
import pytest
import references

PARTS = ["data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms"]
SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs/schemas/metrics.schema.json"


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_add_up_to_the_step(ddprun_bin, ddptrain_bin, data, tmp_path, workers):
    """Compares the sum of the parts with the time between two lines of metrics.jsonl. Lines after an evaluation are skipped."""
    train = jobs.write_config(tmp_path / "train.json", jobs.config(data, model={"type": "cnn"}, batch_size=64, epochs=6, micro_batch_size=16,
                                                                  eval_every_epochs=2, checkpoint={"every_steps": 0}, log={"every_steps": 5}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", workers, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 0, done.stderr
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    sums, by_clock, steps_before, measured = dict.fromkeys(PARTS, 0.0), 0.0, 0, 0
    for line, after in zip(lines := jobs.metrics(tmp_path / "run"), [None, *lines]):
        jsonschema.validate(line, schema)
        if line["event"] != "step":
            continue
        steps, steps_before = line["step"] - steps_before, line["step"]
        if after is None or after["event"] != "step":
            continue  # skipped, because this line follows an evaluation or the start of the job
        measured += steps
        by_clock += (line["time_ns"] - after["time_ns"]) / 1e6
        for part in PARTS:
            assert line[part] >= -0.001
            sums[part] += line[part] * steps
    assert measured >= 40
    assert sum(sums.values()) == pytest.approx(by_clock, rel=0.03)
    assert sums["rest_ms"] < 0.05 * by_clock, sums
    assert all(sums[part] > 0 for part in ("data_ms", "forward_ms", "backward_ms", "optimizer_ms")), sums
    assert (sums["waiting_ms"] > 0.001 * by_clock) == (workers > 1), sums
    shown = jobs.run([ddprun_bin, "report", tmp_path / "run"]).stdout
    assert "\n  step time    " in shown and " ms: data " in shown and " in steps 1 to 60" in shown, shown


def test_peak_memory_of_rank_0_and_the_maximum_are_reported(ddprun_bin, ddptrain_bin, data, tmp_path):
    """Only rank 1 runs a profiler, so its peak memory is higher than the peak memory of rank 0. Both values must be
    reported."""
    train = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=8, log={"every_steps": 10, "tensorboard": False, "trace_step": 2, "trace_steps": 1000, "trace_ranks": [1]}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 0, done.stderr
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    lines = jobs.metrics(tmp_path / "run", "step")
    peaks, largest = ([line[name] for line in lines] for name in ("peak_memory_bytes", "largest_peak_memory_bytes"))
    for line in lines:
        jsonschema.validate(line, schema)
        assert 20 << 20 < line["peak_memory_bytes"] <= line["largest_peak_memory_bytes"] < 4 << 30
    assert peaks == sorted(peaks) and largest == sorted(largest)
    assert largest[-1] > peaks[-1] + (1 << 20), "the value of rank 1 was not received"
    shown = jobs.run([ddprun_bin, "report", tmp_path / "run"]).stdout
    assert f"  peak memory  {peaks[-1] >> 20:,} MiB on rank 0, {largest[-1] >> 20:,} MiB on the rank with the highest peak\n" in shown, shown
    # The reported peak memory of a single worker must not exceed the kernel's value for the process. The kernel's value may be
    # larger, because it includes the memory of the test process that forked the worker.
    process = jobs.start([ddptrain_bin, "--run-dir", tmp_path / "alone", train, "log.trace_step=0"])
    process.communicate()
    at_the_end = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    alone = jobs.metrics(tmp_path / "alone", "step")[-1]
    assert alone["peak_memory_bytes"] == alone["largest_peak_memory_bytes"] <= at_the_end


COUNT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from models import make_model
from torch.utils.flop_counter import FlopCounterMode
for name in ("mlp", "cnn", "resnet20"):
    model = make_model({"type": name, "hidden": [32]}, 28)
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.cross_entropy(model(torch.zeros(4, 1, 28, 28)), torch.zeros(4, dtype=torch.long)).backward()
    print(json.dumps([name, counter.get_total_flops() / 4]))
"""


@pytest.mark.needs_torch_python
def test_operations_per_sample_match_pythons_counter(ddprun_bin, ddptrain_bin, data, tmp_path):
    def count():
        counted = jobs.run([sys.executable, "-c", COUNT, pathlib.Path(__file__).parent / "reference"])
        assert counted.returncode == 0, counted.stderr
        (tmp_path / "python/counts").write_text(counted.stdout)

    references.fill(tmp_path / "python", count, COUNT)
    for name, flops in map(json.loads, (tmp_path / "python/counts").read_text().splitlines()):
        train = jobs.write_config(tmp_path / "train.json", jobs.config(data, model={"type": name, **({"hidden": [32]} if name == "mlp" else {})}, max_steps=3,
                                                                      micro_batch_size=8))
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / name, train])
        assert done.returncode == 0, done.stderr
        for line in jobs.metrics(tmp_path / name, "step"):
            assert line["flops_per_s"] / line["samples_per_s"] == pytest.approx(flops, rel=1e-9)
            assert "mfu" not in line  # the peak rate of a CPU is unknown


def test_chosen_steps_of_chosen_ranks_are_traced(ddprun_bin, ddptrain_bin, data, tmp_path):
    """The trace continues after a worker was lost in a traced step. Tracing does not change any bit of the results."""
    config = jobs.config(data, epochs=1)
    runs = {}
    for name, log, fault in (("plain", {}, ""), ("traced", {"trace_step": 5, "trace_steps": 2, "trace_ranks": [0, 1]}, ""),
                             ("struck", {"trace_step": 5, "trace_steps": 6}, "kill rank=1 step=7 phase=backward")):
        train = jobs.write_config(tmp_path / f"{name}.json", {**config, "log": {**config["log"], **log}})
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / name, train], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stdout + done.stderr  # on a machine without a GPU, PyTorch's profiler could print errors
        runs[name] = jobs.weights_digest(tmp_path / name), sorted(file.name for file in (tmp_path / name).glob("traces/*"))
    assert runs["plain"] == (runs["traced"][0], []) and runs["struck"][0] == runs["plain"][0]
    assert runs["traced"][1] == ["step-000000005-rank-0.json", "step-000000005-rank-1.json"]
    assert len(runs["struck"][1]) == 1 and runs["struck"][1][0] != "step-000000005-rank-0.json"
    events = json.loads((tmp_path / "traced/traces/step-000000005-rank-1.json").read_text())["traceEvents"]
    # The trace has one event for each of the two traced steps.
    assert sum(event.get("name") == "aten::cross_entropy_loss" for event in events) == 2
    assert any(event.get("name") == "aten::_fused_adamw_" for event in events)
    # A run that ends within the range of traced steps must write the trace up to its last step. A run that ends before this
    # range must report that no trace was written.
    train = jobs.write_config(tmp_path / "short.json", {**config, "log": {**config["log"], "trace_step": 5, "trace_steps": 10}})
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "short", train, "max_steps=6"])
    assert done.returncode == 0 and "wrote the trace of steps 5 to 6 to " in done.stdout, done.stderr
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "early", train, "max_steps=4"])
    assert done.returncode == 0 and "log.trace_step is 5, but training ends after step 4, so no step was traced" in done.stderr, done.stderr
    # If the trace cannot be written, the run must report this and train normally.
    train = jobs.write_config(tmp_path / "blocked.json", {**config, "log": {**config["log"], "trace_step": 4}})
    for steps in (2, 0):
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "blocked", train, f"max_steps={steps}"])
        assert done.returncode == 0, done.stderr
        (tmp_path / "blocked/traces").touch()
    assert "could not be written to" in done.stderr and jobs.weights_digest(tmp_path / "blocked") == runs["plain"][0]
