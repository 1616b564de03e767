"""Tests of several threads that prepare batches. The tests show that the number of threads does not change any bit of the
results, even after a kill and a resume. A bad sample must end the run in the step that uses the sample."""

import jobs
import pytest
from killed_models import MODELS


def ran(ddprun, folder, name: str, *changes, **environment):
    done = jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", folder / name, folder / "train.json", *changes], **environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["mlp, csv", *(pytest.param(name, marks=pytest.mark.long) for name in (
    "cnn", "resnet20, cifar10", "resnet20, folder", "gpt", "mlp, arrays", "exported cnn"))])
def test_the_number_of_threads_changes_no_bit(ddprun_bin, ddptrain_bin, tmp_path, name):
    content = MODELS[name].config(tmp_path)
    if "path" in content["model"]:
        content["model"] = {**content["model"], "path": str(tmp_path / content["model"]["path"])}
    content.pop("schedule", None)  # a schedule would make the learning rates depend on max_steps
    steps = -(-MODELS[name].samples // content["batch_size"])  # steps in one epoch
    jobs.write_config(tmp_path / "train.json", {**content, "epochs": 2, "eval_every_epochs": 1, "eval_batch_size": 9})
    ran(ddprun_bin, tmp_path, "one")
    ran(ddprun_bin, tmp_path, "killed", "data.loader_threads=3", DDPTRAIN_FAULT=f"kill rank=1 step={steps + 2} phase=backward")
    ran(ddprun_bin, tmp_path, "resumed", "data.loader_threads=5", "data.prefetch=1", f"max_steps={steps - 1}")
    ran(ddprun_bin, tmp_path, "resumed", "data.loader_threads=2")

    def evaluation(run):
        return {key: value for key, value in jobs.metrics(tmp_path / run, "eval")[-1].items() if key != "time_ns"}

    assert evaluation("one")["step"] == 2 * steps
    for run in ("killed", "resumed"):
        assert jobs.weights_digest(tmp_path / run) == jobs.weights_digest(tmp_path / "one"), run
        assert jobs.losses(tmp_path / run) == jobs.losses(tmp_path / "one"), run
        assert evaluation(run) == evaluation("one"), run
        jobs.assert_each_sample_once(tmp_path / run, epochs=2, samples=MODELS[name].samples)


def test_a_bad_sample_ends_the_run_in_its_step(ddprun_bin, ddptrain_bin, tmp_path):
    """A loader thread reads the bad sample early, but the run must not end before the step that uses this sample."""
    content = MODELS["gpt"].config(tmp_path)
    jobs.write_config(tmp_path / "train.json", {**content, "epochs": 1})
    tokens = bytearray((tmp_path / "data/train.txt").read_bytes())
    tokens[100 * 32 + 7] = 0xfe
    (tmp_path / "data/train.txt").write_bytes(tokens)
    losses_of_runs = []
    for threads in (1, 4):
        run = tmp_path / str(threads)
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run, tmp_path / "train.json", "data.vocab_size=254", "model.n_layer=1",
                         f"data.loader_threads={threads}"])
        assert done.returncode == 2 and f"{tmp_path}/data/train.txt: token 3207 is 254; expected a number below data.vocab_size, 254" in done.stderr, done.stderr
        assert len(jobs.report(run)["rounds"]) == 1, "an error of the data must not cause a restart"
        losses_of_runs.append(jobs.losses(run))
    # The rank with the bad sample ends the job immediately, so the log of a run may not contain the last step before the
    # error.
    fewer, more = sorted(losses_of_runs, key=len)
    assert fewer == more[:len(fewer)] and len(more) - len(fewer) <= 1 and fewer, losses_of_runs
