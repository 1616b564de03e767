"""Tests of the copies of checkpoints on each node's own disk. Two agents on the loopback interface have separate folders for
the copies. The tests delete or damage the checkpoints in the run directory, the copies or both. The final results must still
be bit-identical to the results of an undisturbed run."""

import pathlib
import shutil

import jobs
import pytest
from disks import small_disk
from two_nodes import Job


@pytest.fixture(scope="module")
def calm(ddprun_bin, data, tmp_path_factory) -> pathlib.Path:
    """Runs the job without faults on two workers, and returns the run directory."""
    folder = tmp_path_factory.mktemp("calm")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", folder / "run", jobs.write_config(folder / "train.json", jobs.config(data))])
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def job(nodes, data, tmp_path):
    return Job(nodes, tmp_path, jobs.config(data))


def flip_a_bit(checkpoint: pathlib.Path) -> None:
    file = checkpoint / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def test_each_node_keeps_the_newest_two(job, calm):
    assert job.launch() == [0, 0], job.nodes.all_text()
    job.assert_same_bits(calm)
    for node in (0, 1):
        assert [c.name for c in job.copies(node)] == ["step-000000035", "step-000000040"]
    for name in ("model.safetensors", "optimizer.safetensors", "manifest.json"):
        assert len({f.read_bytes() for f in ((c / name) for c in (*(job.copies(n)[-1] for n in (0, 1)), job.shared()[-1]))}) == 1, name


def test_a_lost_run_directory_loses_no_step(job, calm):
    job.fail_at(16)
    shutil.rmtree(job.run_dir(0))
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert job.resumed() == [(14, str(job.folder / "disk-0" / job.copies(0)[0].parent.parent.name / "copy-0" / "step-000000014"))]
    assert "the run continues from the copies on the local disks of the nodes" in job.nodes.all_text()
    job.assert_same_bits(calm)


@pytest.mark.parametrize("damaged", ["the run directory's", "node 0's", "node 1's"])
def test_a_damaged_newest_copy_is_set_aside(job, calm, damaged):
    job.fail_at(16)
    victim = job.shared()[-1] if damaged == "the run directory's" else job.copies(int(damaged[5]))[-1]
    flip_a_bit(victim)
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [14]
    assert "step-000000014 is damaged" in job.nodes.all_text()
    assert victim.with_name(victim.name + ".bad").exists()
    job.assert_same_bits(calm)


def test_a_missing_copy_is_sent_to_its_node(job, calm):
    """The newest checkpoint in the run directory is corrupt, and node 1 has a new, empty disk. Node 0 must send the state of
    its copy to node 1."""
    job.fail_at(16)
    flip_a_bit(job.shared()[-1])
    shutil.rmtree(job.folder / "disk-1")
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [14]
    job.assert_same_bits(calm)


def test_each_node_reads_its_own_copy(nodes, data, tmp_path, calm):
    job = Job(nodes, tmp_path, jobs.config(data), own_run_directories=True)
    job.fail_at(16)
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [14]
    job.assert_same_bits(calm)


def test_fresh_ignores_copies(job, calm):
    job.fail_at(16)
    assert job.launch("--fresh") == [0, 0], job.nodes.all_text()
    assert job.resumed() == []
    assert [s for s, _ in jobs.losses(job.run_dir(0))][0] == 1
    job.assert_same_bits(calm)


def test_timed_saves_have_equal_steps_on_all_nodes(job):
    """Only the clock of rank 0 decides when to save. In this test almost every step is saved. Both nodes must save the same
    steps, so rank 0 must send each decision to the other node."""
    by_time = ["checkpoint.every_steps=0", "checkpoint.every_seconds=0.001", "checkpoint.background=false", "epochs=1"]
    assert job.launch(overrides=by_time) == [0, 0], job.nodes.all_text()
    assert len(jobs.metrics(job.run_dir(0), "checkpoint")) > 5
    names = [[c.name for c in job.copies(node)] for node in (0, 1)]
    assert names[0] == names[1] and len(names[0]) == 2
    assert names[0] == [c.name for c in job.shared()][-2:]


@pytest.mark.parametrize("background", [True, False])
def test_a_full_or_read_only_disk_is_a_warning(ddprun_bin, data, tmp_path, calm, background):
    with small_disk(tmp_path / "disk", "560k") as disk:
        config = jobs.config(data, checkpoint={"local_dir": str(disk), "background": background})
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config)])
        assert done.returncode == 0, done.stderr
        assert "the copy of the checkpoint of step 14 could not be saved on this node" in done.stdout + done.stderr
        assert any("could not be saved on this node" in e["message"] for e in jobs.metrics(tmp_path / "run", "warning"))
        assert [p.name for p in disk.glob("run-*/copy-0/step-*")] == ["step-000000007"]
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(calm)


def test_an_uncreatable_folder_is_a_warning(ddprun_bin, data, tmp_path, calm):
    (tmp_path / "file").write_text("")
    config = jobs.config(data, checkpoint={"local_dir": str(tmp_path / "file")})
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config)])
    assert done.returncode == 0, done.stderr
    assert "this node saves no copies of checkpoints until this is fixed" in done.stdout + done.stderr
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(calm)


@pytest.mark.parametrize("local_dir,words", [
    ("copies", ["/checkpoint/local_dir", "absolute", '"copies"']),
    ("RUN", ["/checkpoint/local_dir", "inside the run directory"]),
    ("RUN/checkpoints", ["/checkpoint/local_dir", "inside the run directory"]),
])
def test_a_relative_path_and_the_run_directory_are_refused(ddprun_bin, data, tmp_path, local_dir, words):
    config = jobs.config(data, checkpoint={"local_dir": local_dir.replace("RUN", str(tmp_path / "run"))})
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config)])
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()
