"""Tests of silent corruption: a bit of one rank's weights changes without an error. The ranks compare their states. A message
must name the corrupt rank, and the final results must be bit-identical to the results of an undisturbed run. If no state is
corrupt, nothing may be reported."""

import json
import pathlib
import re
import subprocess

import jobs
import pytest

BATCH_NORM = {"model": {"type": "resnet18"}, "data": {"train_samples": 24, "test_samples": 4, "ledger": False}, "batch_size": 8,
              "micro_batch_size": 2, "epochs": 1, "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9}, "checkpoint": {"every_steps": 2}}


class Trained:
    """A run that has ended, with its output and run directory."""

    def __init__(self, ddprun, folder: pathlib.Path, dataset: pathlib.Path, workers: int, *flags, compare: int = 1, **changes):
        folder.mkdir()
        self.run_dir = folder / "run"
        # Training waits for each save, so a checkpoint exists before the next step starts.
        changes["checkpoint"] = {"background": False, **changes.get("checkpoint", {})}
        config = jobs.write_config(folder / "train.json", jobs.config(dataset, **{"ddp": {"compare_every_steps": compare}, **changes}))
        self.ended: subprocess.CompletedProcess = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", self.run_dir, *flags, config])
        self.report = jobs.report(self.run_dir)

    @property
    def failed_rounds(self) -> list[tuple[str, str]]:
        return [(r["first_cause"]["cause"], r["decision"]) for r in self.report["rounds"] if r["first_cause"]]

    def assert_ended_as(self, calm: "Trained") -> None:
        assert self.ended.returncode == calm.ended.returncode == 0, self.ended.stderr
        assert jobs.weights_digest(self.run_dir) == jobs.weights_digest(calm.run_dir)
        assert jobs.losses(self.run_dir) == jobs.losses(calm.run_dir)


@pytest.fixture(scope="module")
def undisturbed(ddprun_bin, data, tmp_path_factory):
    """Returns undisturbed(workers, ...), which runs a job without faults and without comparisons of states. A job with the same
    arguments runs only once."""
    runs = {}

    def of(workers: int, dataset: pathlib.Path = data, **changes) -> Trained:
        key = (workers, json.dumps(changes, sort_keys=True))
        if key not in runs:
            runs[key] = Trained(ddprun_bin, tmp_path_factory.mktemp("calm") / "job", dataset, workers, compare=0, **changes)
        return runs[key]

    return of


@pytest.mark.parametrize("rank", [0, 2])
def test_a_corrupt_minority_is_named_and_replaced(ddprun_bin, data, tmp_path, undisturbed, rank):
    trained = Trained(ddprun_bin, tmp_path / "job", data, 3, "--chaos", f"flip rank={rank} step=11")
    trained.assert_ended_as(undisturbed(3))
    jobs.assert_each_sample_once(trained.run_dir, 2)
    assert trained.failed_rounds == [("corrupt_state", "regroup")], trained.ended.stderr
    assert trained.report["failures"] == {"corrupt_state": 1}
    first = trained.report["rounds"][0]["first_cause"]
    assert (first["rank"], first["exit_code"], first["step"]) == (rank, 88, 11)
    others = [other for other in range(3) if other != rank]
    assert trained.report["rounds"][1]["regroup"]["kept"] == others
    what = "differs after step 11 from that of 2 other ranks (1 of 16 tensors: fc1.weight)"
    shown = jobs.run([ddprun_bin, "report", trained.run_dir]).stdout
    for text in (first["message"], trained.ended.stderr, shown):
        assert what in text
    assert "corrupt_state (1)" in shown


@pytest.mark.parametrize("recovery", ["live", "checkpoint"])
def test_without_a_majority_no_state_is_kept(ddprun_bin, data, tmp_path, undisturbed, recovery):
    trained = Trained(ddprun_bin, tmp_path / "job", data, 2, "--recovery", recovery, "--chaos", "flip rank=1 step=11")
    trained.assert_ended_as(undisturbed(2))
    assert trained.failed_rounds == [("corrupt_state", "restart")], trained.ended.stderr
    assert "the training states of ranks 0 and 1 differ after step 11" in trained.ended.stderr
    assert "The correct state is unknown, so none is kept" in trained.ended.stderr
    # The newest checkpoint before the bit flip is the checkpoint of step 7.
    assert [e["step"] for e in jobs.metrics(trained.run_dir, "restart")] == [7]


@pytest.mark.parametrize("workers,continued", [(2, ("restart", 7)), (3, ("regroup", 14))])
def test_a_diverged_state_is_not_saved(ddprun_bin, data, tmp_path, undisturbed, workers, continued):
    # The states are compared only before a checkpoint is saved: after steps 7, 14, 21, ...
    trained = Trained(ddprun_bin, tmp_path / "job", data, workers, "--chaos", "flip rank=0 step=14", compare=1000)
    trained.assert_ended_as(undisturbed(workers))
    assert trained.failed_rounds == [("corrupt_state", continued[0])], trained.ended.stderr
    assert [e["step"] for e in jobs.metrics(trained.run_dir, continued[0])] == [continued[1]]
    saved = [e["step"] for e in jobs.metrics(trained.run_dir, "checkpoint")]
    assert saved == [7, 14, 21, 28, 35, 40]


def test_the_next_comparison_finds_a_change(ddprun_bin, data, tmp_path, undisturbed):
    trained = Trained(ddprun_bin, tmp_path / "job", data, 3, "--recovery", "checkpoint", "--chaos", "flip rank=1 step=9", compare=4)
    # The corrupt rank has also changed the other ranks' weights. After the resume from step 7, these errors must be gone too.
    trained.assert_ended_as(undisturbed(3))
    assert trained.failed_rounds == [("corrupt_state", "restart")], trained.ended.stderr
    assert trained.report["rounds"][0]["first_cause"]["step"] == 12


@pytest.mark.parametrize("workers", [2, 3])
def test_equal_states_are_not_reported(ddprun_bin, tiny_images, tmp_path, undisturbed, workers):
    """Three things must not be mistaken for corruption: batch norm buffers that each rank computes from its own samples,
    accumulated gradients, and a replaced rank."""
    trained = Trained(ddprun_bin, tmp_path / "job", tiny_images, workers, "--chaos", "kill rank=0 step=1 phase=optimizer", **BATCH_NORM)
    trained.assert_ended_as(undisturbed(workers, tiny_images, **BATCH_NORM))
    assert trained.failed_rounds == [("signal", "regroup")], trained.ended.stderr


def test_a_regroup_detects_a_corruption(ddprun_bin, data, tmp_path):
    faults = "flip rank=1 step=11; kill rank=2 step=17"
    trained = Trained(ddprun_bin, tmp_path / "job", data, 3, "--chaos", faults, compare=0)
    assert trained.ended.returncode == 0, trained.ended.stderr
    assert trained.failed_rounds == [("signal", "regroup"), ("corrupt_state", "restart")], trained.ended.stderr
    # The step is 16 instead of 17 if the end of rank 2 reset a connection that still contained data of step 17.
    found = re.search(r"the training states of ranks 0 to 2 differ after step (\d+)", trained.ended.stderr)
    assert found and found[1] in ("16", "17"), trained.ended.stderr


def test_a_stop_does_not_save_a_diverged_state(ddprun_bin, data, tmp_path):
    config = jobs.config(data, epochs=10000, data={"ledger": False}, checkpoint={"every_steps": 0}, ddp={"compare_every_steps": 10**9})
    command = [ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", "--chaos", "flip rank=1 step=3",
               jobs.write_config(tmp_path / "train.json", config)]
    job = jobs.start(command)
    for line in job.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["step"] > 3:
            break
    job.terminate()
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 128 + 15, errors
    failed = jobs.report(tmp_path / "run")["rounds"][0]["first_cause"]
    assert failed["cause"] == "corrupt_state", errors
    assert not (tmp_path / "run" / "checkpoints" / "latest").exists()
