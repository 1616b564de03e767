"""Tests of ddptrain when it runs out of memory. After the restart, the memory must be sufficient for the job.
trainer/failure/memory_fit.hpp has the rule: the rank halves its micro-batch, and the global batch does not change. Unit tests
check the arithmetic of the rule, but they cannot test the interaction of processes. The new size might not be on the disk when
the process ends, or another rank might keep the larger size. A step might be lost or repeated, or the restart might count
against the restart budget.

How much memory is available depends on the machine. Therefore fault injection throws std::bad_alloc when more than `above`
samples go through the model in one pass. So the available memory is expressed as a number of samples. With `above=5`,
micro-batches of 16 and 8 samples fail, but a micro-batch of 4 samples does not fail. Most jobs have `--max-restarts 0`, so a
restart that counts against the budget would end the job. The tests check that the job ends with exit code 0, that
memory-fit.json contains the size that fits, and that each sample is used once. The first test starts the job again. The second
invocation must use the recorded size and must not run out of memory.

These tests use no real limit of an allocator. tests/whole_program/test_gpu.py contains a test with a real limit, for machines
with a GPU.
"""

import json
import pathlib

import jobs
import pytest
import rehearsal


def train(ddprun, folder: pathlib.Path, data: pathlib.Path, fault: str, *flags, **changes):
    config = jobs.write_config(folder / "train.json", jobs.config(data, **changes))
    return jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", folder / "run", *flags, config], DDPTRAIN_FAULT=fault)


def test_the_same_batch_runs_in_smaller_micro_batches(ddprun_bin, data, tmp_path):
    (tmp_path / "calm").mkdir()
    assert train(ddprun_bin, tmp_path / "calm", data, "").returncode == 0
    # From step 10 on, an injected fault lets rank 1 process only 5 samples at a time, so micro-batches of 16 and 8 samples
    # fail.
    done = train(ddprun_bin, tmp_path, data, "oom rank=1 restart=any step=10 above=5", "--max-restarts", 0)
    assert done.returncode == 0, done.stderr
    report = jobs.report(tmp_path / "run")
    causes = [r["first_cause"] for r in report["rounds"] if r["first_cause"]]
    assert [(c["cause"], c["rank"]) for c in causes] == [("out_of_memory", 1)] * 2
    assert "uses a micro-batch of 8 samples instead of 16, and the global batch size does not change" in causes[0]["message"]
    assert "uses a micro-batch of 4 samples instead of 8" in causes[1]["message"]
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 4
    jobs.assert_each_sample_once(tmp_path / "run", 2)
    ours, theirs = jobs.losses(tmp_path / "run"), jobs.losses(tmp_path / "calm" / "run")
    assert [step for step, _ in ours] == [step for step, _ in theirs]
    assert [loss for _, loss in ours] == pytest.approx([loss for _, loss in theirs], rel=2e-4)
    # The next invocation uses the reduced size from the beginning, so it does not run out of memory.
    again = train(ddprun_bin, tmp_path, data, "oom rank=1 restart=any above=5", "--max-restarts", 0, epochs=3)
    assert again.returncode == 0, again.stderr
    assert "batch sizes reduced, because an earlier round ran out of memory" in again.stderr
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 4


def test_the_survivor_keeps_its_state_with_smaller_micro_batches(ddprun_bin, data, tmp_path):
    done = train(ddprun_bin, tmp_path, data, "oom rank=1 step=13 above=8", "--max-restarts", 0)
    assert done.returncode == 0, done.stderr
    assert "rank 0 kept step 13" in done.stdout + done.stderr
    report = jobs.report(tmp_path / "run")
    assert [(r["decision"], r["regroup"] and r["regroup"]["kept"]) for r in report["rounds"]] == [("regroup", None), ("end", [0])]
    assert report["steps_lost"] == 0
    assert jobs.metrics(tmp_path / "run", "restart") == []
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 8
    jobs.assert_each_sample_once(tmp_path / "run", 2)


@pytest.mark.parametrize("flags", [["--recovery", "checkpoint"], ["--recovery", "live"]])
def test_all_ranks_run_out_of_memory_together(ddprun_bin, data, tmp_path, flags):
    done = train(ddprun_bin, tmp_path, data, "oom rank=all restart=any step=10 above=8", "--max-restarts", 0, *flags)
    assert done.returncode == 0, done.stderr
    report = jobs.report(tmp_path / "run")
    assert set(report["failures"]) == {"out_of_memory"}
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 8
    jobs.assert_each_sample_once(tmp_path / "run", 2)


def test_on_two_nodes_it_costs_no_restart(ddprun_bin, data, tmp_path):
    place = rehearsal.Place(tmp_path)
    place.train(ddprun_bin, "run", jobs.config(data), 2, ["--max-restarts", "0", "--chaos", "oom rank=1 step=10"])
    assert jobs.report(tmp_path / "run")["failures"] == {"out_of_memory": 1}
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 8


def test_a_single_sample_too_large_has_its_own_exit_code(ddprun_bin, data, tmp_path):
    done = train(ddprun_bin, tmp_path, data, "oom rank=all restart=any above=0", batch_size=4)
    assert done.returncode == 84, done.stderr
    assert "the micro-batch is already 1 sample and cannot be reduced" in done.stderr
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 2  # the passes with 2 samples and with 1 sample failed


def test_a_model_too_large_has_the_same_exit_code(ddprun_bin, data, tmp_path):
    """The model itself needs 3 TB of memory, so the job fails before its first batch. It must have the same exit code as a job
    that runs out of memory in a batch."""
    done = train(ddprun_bin, tmp_path, data, "", "--nproc-per-node", 1, model={"type": "mlp", "hidden": [10**9]})
    assert done.returncode == 84, done.stderr


def test_an_evaluation_that_does_not_fit_shrinks_its_own_batch(ddprun_bin, data, tmp_path):
    done = train(ddprun_bin, tmp_path, data, "oom rank=0 step=20 phase=evaluating", "--max-restarts", 0, eval_batch_size=100)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text()) == {
        "eval_batch_size": 50, "micro_batch_size": 0, "for": json.loads((tmp_path / "run" / "memory-fit.json").read_text())["for"]}
