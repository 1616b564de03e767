"""ddptrain runs out of memory: the proof that the job fits after its restart.

trainer/failure/memory_fit.hpp has the rule: the rank halves its micro-batch, and the global batch stays. Unit tests show the arithmetic.
The rest can only go wrong between processes. A size may not be on the disk when the process ends, or another rank may keep the larger
size. A step may be lost or repeated, or the restart may be charged to the budget.

A real shortage of memory depends on the machine. So fault injection throws std::bad_alloc when more samples than `above` go through the
model at once. Memory is then a number of samples: with `above=5`, micro-batches of 16 and 8 are refused, and 4 fits. Most jobs have
`--max-restarts 0`, so a restart that is charged ends the job. The tests check that the job ends with 0, that memory-fit.json has the size
that fits, and that each sample is used once. The first test starts the job again: it uses the learned size and does not run out again.

What this does not show is a real allocator. tests/whole_program/test_gpu.py has one, on machines with a GPU.
"""

import json
import pathlib

import jobs
import pytest
import rehearsal


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


def train(ddprun, folder: pathlib.Path, data: pathlib.Path, fault: str, *flags, **changes):
    config = jobs.write_config(folder / "train.json", jobs.config(data, **changes))
    return jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", folder / "run", *flags, config], DDPTRAIN_FAULT=fault)


def test_the_same_batch_goes_through_in_smaller_pieces(ddprun_bin, data, tmp_path):
    (tmp_path / "calm").mkdir()
    assert train(ddprun_bin, tmp_path / "calm", data, "").returncode == 0
    # Rank 1 has memory for 5 samples from step 10 on: neither 16 nor 8 fit.
    done = train(ddprun_bin, tmp_path, data, "oom rank=1 restart=any step=10 above=5", "--max-restarts", 0)
    assert done.returncode == 0, done.stderr
    report = jobs.report(tmp_path / "run")
    causes = [r["first_cause"] for r in report["rounds"] if r["first_cause"]]
    assert [(c["cause"], c["rank"]) for c in causes] == [("out_of_memory", 1)] * 2
    assert "goes on with a micro-batch of 8 samples instead of 16, the global batch stays" in causes[0]["message"]
    assert "goes on with a micro-batch of 4 samples instead of 8" in causes[1]["message"]
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 4
    jobs.assert_each_sample_once(tmp_path / "run", 2)
    ours, theirs = jobs.losses(tmp_path / "run"), jobs.losses(tmp_path / "calm" / "run")
    assert [step for step, _ in ours] == [step for step, _ in theirs]
    assert [loss for _, loss in ours] == pytest.approx([loss for _, loss in theirs], rel=2e-4)
    # The next start begins with the learned size, and does not run out of memory again.
    again = train(ddprun_bin, tmp_path, data, "oom rank=1 restart=any above=5", "--max-restarts", 0, epochs=3)
    assert again.returncode == 0, again.stderr
    assert "as learned from running out of memory" in again.stderr
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 4


def test_the_other_keeps_its_state_and_takes_smaller_pieces_with_the_new_one(ddprun_bin, data, tmp_path):
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
def test_all_ranks_run_out_at_once(ddprun_bin, data, tmp_path, flags):
    done = train(ddprun_bin, tmp_path, data, "oom rank=all restart=any step=10 above=8", "--max-restarts", 0, *flags)
    assert done.returncode == 0, done.stderr
    report = jobs.report(tmp_path / "run")
    assert set(report["failures"]) == {"out_of_memory"}
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 8
    jobs.assert_each_sample_once(tmp_path / "run", 2)


def test_on_two_nodes_it_costs_no_restart_either(ddprun_bin, data, tmp_path):
    place = rehearsal.Place(tmp_path)
    place.train(ddprun_bin, "run", jobs.config(data), 2, ["--max-restarts", "0", "--chaos", "oom rank=1 step=10"])
    assert jobs.report(tmp_path / "run")["failures"] == {"out_of_memory": 1}
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text())["micro_batch_size"] == 8


def test_one_sample_that_does_not_fit_ends_with_a_code_of_its_own(ddprun_bin, data, tmp_path):
    done = train(ddprun_bin, tmp_path, data, "oom rank=all restart=any above=0", batch_size=4)
    assert done.returncode == 84, done.stderr
    assert "the micro-batch is 1 sample already, so nothing is left to shrink" in done.stderr
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 2  # 2 samples, 1 sample


def test_a_model_that_fits_nowhere_ends_with_that_code_as_well(ddprun_bin, data, tmp_path):
    """No batch has been tried yet, so it is unknown whether a smaller one would fit. A machine without 3 TB of memory refuses the model."""
    done = train(ddprun_bin, tmp_path, data, "", "--nproc-per-node", 1, model={"type": "mlp", "hidden": [10**9]})
    assert done.returncode == 84, done.stderr


def test_an_evaluation_that_does_not_fit_shrinks_its_own_batch(ddprun_bin, data, tmp_path):
    done = train(ddprun_bin, tmp_path, data, "oom rank=0 step=20 phase=evaluating", "--max-restarts", 0, eval_batch_size=100)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "memory-fit.json").read_text()) == {
        "eval_batch_size": 50, "micro_batch_size": 0, "for": json.loads((tmp_path / "run" / "memory-fit.json").read_text())["for"]}
