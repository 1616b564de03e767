"""Tests of two nodes without a shared disk. Each node has a separate run directory, and node 0 writes the checkpoints. When
the job starts, the node with the newest state sends this state to the other node. The tests cover state that was lost between
two invocations, and outdated state of a run that was started again from scratch."""

import pathlib
import shutil
import signal

import jobs
import pytest
from two_nodes import Job

LOGGED = "the training's first steps being logged"


def undisturbed(ddprun, data, folder: pathlib.Path, *overrides) -> pathlib.Path:
    """Runs the job without faults on two workers, and returns the run directory."""
    done = jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", folder / "run", jobs.write_config(folder / "train.json", jobs.config(data)), *overrides])
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def calm(ddprun_bin, data, tmp_path_factory) -> pathlib.Path:
    return undisturbed(ddprun_bin, data, tmp_path_factory.mktemp("calm"))


@pytest.fixture
def job(nodes, data, tmp_path):
    """Returns a job that keeps no copies of checkpoints on the nodes' own disks."""
    return Job(nodes, tmp_path, jobs.config(data), own_run_directories=True, copies=False)


@pytest.fixture
def job_with_copies(nodes, data, tmp_path):
    return Job(nodes, tmp_path, jobs.config(data), own_run_directories=True)


def test_a_signal_and_another_start_change_no_bit(job, ddprun_bin, data, tmp_path_factory):
    job.start(overrides=["epochs=10000"])
    metrics = job.run_dir(0) / "metrics.jsonl"
    job.nodes.until(lambda: metrics.exists() and metrics.read_text().count('"event":"step"') > 3, LOGGED)
    job.nodes.agents[0].send_signal(signal.SIGTERM)
    assert job.nodes.wait() == [85, 85], job.nodes.all_text()
    assert not (job.run_dir(1) / "checkpoints").exists()
    reached = jobs.metrics(job.run_dir(0), "step")[-1]["step"]
    epochs = f"epochs={reached // 20 + 2}"
    assert job.launch(overrides=[epochs]) == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [reached]
    calm = undisturbed(ddprun_bin, data, tmp_path_factory.mktemp("calm"), epochs)
    job.assert_same_bits(calm)
    assert jobs.losses(job.run_dir(0)) == jobs.losses(calm)


def test_a_lost_worker_of_the_node_without_checkpoints_is_replaced(job, calm):
    assert job.launch("--recovery", "checkpoint", overrides=["checkpoint.background=false"], restarts=1,
                      DDPTRAIN_FAULT="kill rank=1 step=16") == [0, 0], job.nodes.all_text()
    assert [e["step"] for e in jobs.metrics(job.run_dir(0), "restart")] == [14]
    job.assert_same_bits(calm)
    assert jobs.losses(job.run_dir(0)) == jobs.losses(calm)


def test_a_new_disk_of_node_0_is_restored_from_copies(job_with_copies, calm):
    job = job_with_copies
    job.fail_at(16)
    shutil.rmtree(job.run_dir(0).parent)
    shutil.rmtree(job.folder / "disk-0")
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert job.resumed() == [(14, str(job.folder / "disk-1" / job.copies(1)[0].parent.parent.name / "copy-0" / "step-000000014"))]
    assert "the run continues from the checkpoint of rank 1, which sends it" in job.nodes.text(0)
    job.assert_same_bits(calm)


def test_a_finished_run_with_a_new_disk_stays_finished(job_with_copies, calm):
    job = job_with_copies
    assert job.launch() == [0, 0], job.nodes.all_text()
    shutil.rmtree(job.run_dir(0).parent)
    shutil.rmtree(job.folder / "disk-0")
    assert job.launch() == [0, 0], job.nodes.all_text()
    job.assert_same_bits(calm)
    assert jobs.metrics(job.run_dir(0), "step") == []
    assert job.launch(nodes=[0]) == [0]
    assert "already done" in job.nodes.text(0)


@pytest.mark.parametrize("failing_at", [pytest.param(8, id="after its first save"), pytest.param(3, id="before its first save", marks=pytest.mark.long)])
def test_stale_copies_of_an_absent_node_are_ignored(job_with_copies, failing_at):
    job = job_with_copies
    job.fail_at(16)
    assert job.launch("--fresh", nodes=[0], overrides=["checkpoint.background=false"], DDPTRAIN_FAULT=f"exit=7 rank=0 step={failing_at}") == [7]
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == ([7] if failing_at > 7 else [])
    assert [s for s, _ in jobs.losses(job.run_dir(0))] == list(range(1, 41))
    old = job.folder / "disk-1" / job.copies(1)[0].parent.parent.name / "copy-0"
    assert (old / "step-000000014.superseded").exists()


@pytest.mark.long
def test_a_moved_run_continues_on_another_node(job_with_copies):
    """Node 0 is lost. After that, another node has rank 0 and saves in its own run directory. The next invocation must resume
    from this state, even if another node is the coordinator."""
    job = job_with_copies
    job.start(overrides=["epochs=10000"], nodes=(0, 1, 2), least=2, restarts=3)
    metrics = [job.run_dir(node) / "metrics.jsonl" for node in range(3)]
    job.nodes.until(lambda: job.copies(1) and job.copies(2), "copies on the nodes that stay")
    job.nodes.agents[0].kill()
    moved = job.nodes.until(lambda: next((n for n in (1, 2) if metrics[n].exists() and '"event":"checkpoint"' in metrics[n].read_text()), None),
                            "a checkpoint of another rank 0")
    for agent in job.nodes.agents[1:]:
        agent.send_signal(signal.SIGTERM)
    job.nodes.wait()
    reached = jobs.newest_step(job.run_dir(moved))
    assert reached > jobs.newest_step(job.run_dir(0))
    shutil.rmtree(job.folder / f"disk-{moved}")  # the run directory on that node contains the newest state
    epochs = reached // 20 + 2
    assert job.launch(overrides=[f"epochs={epochs}"], nodes=(0, moved)) == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [reached]
    assert job.launch(overrides=[f"epochs={epochs + 1}"], nodes=(moved, 0)) == [0, 0], job.nodes.all_text()
    assert jobs.metrics(job.run_dir(moved), "resume")[-1]["step"] == epochs * 20
