"""Copies of checkpoints on each node's own disk: two agents on loopback, with a folder each. They lose the checkpoints in the run directory, their
own copies or both, and still end with the bits of an undisturbed run."""

import pathlib
import shutil

import jobs
import pytest
from disks import small_disk
from two_nodes import Job


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def calm(ddprun_bin, data, tmp_path_factory) -> pathlib.Path:
    """The run directory of two undisturbed workers."""
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


def test_a_run_directory_that_is_lost_costs_nothing(job, calm):
    job.fail_at(16)
    shutil.rmtree(job.run_dir(0))
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert job.resumed() == [(14, str(job.folder / "disk-0" / job.copies(0)[0].parent.parent.name / "copy-0" / "step-000000014"))]
    assert "the run goes on from the copies on the nodes' own disks" in job.nodes.all_text()
    job.assert_same_bits(calm)


@pytest.mark.parametrize("damaged", ["the run directory's", "node 0's", "node 1's"])
def test_a_damaged_newest_one_is_set_aside_and_the_other_taken(job, calm, damaged):
    job.fail_at(16)
    victim = job.shared()[-1] if damaged == "the run directory's" else job.copies(int(damaged[5]))[-1]
    flip_a_bit(victim)
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [14]
    assert "step-000000014 is bad" in job.nodes.all_text()
    assert victim.with_name(victim.name + ".bad").exists()
    job.assert_same_bits(calm)


def test_what_one_node_lacks_is_sent_to_it(job, calm):
    """The run directory's newest checkpoint is corrupted, and node 1 has a new disk: node 0 sends the state of its copy."""
    job.fail_at(16)
    flip_a_bit(job.shared()[-1])
    shutil.rmtree(job.folder / "disk-1")
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [14]
    job.assert_same_bits(calm)


def test_without_a_shared_file_system_each_node_reads_its_own(nodes, data, tmp_path, calm):
    job = Job(nodes, tmp_path, jobs.config(data), own_run_directories=True)
    job.fail_at(16)
    assert job.launch() == [0, 0], job.nodes.all_text()
    assert [step for step, _ in job.resumed()] == [14]
    job.assert_same_bits(calm)


def test_fresh_goes_on_from_no_copy(job, calm):
    job.fail_at(16)
    assert job.launch("--fresh") == [0, 0], job.nodes.all_text()
    assert job.resumed() == []
    assert [s for s, _ in jobs.losses(job.run_dir(0))][0] == 1
    job.assert_same_bits(calm)


def test_saves_by_time_are_of_the_same_steps_on_all_nodes(job):
    """Rank 0's clock alone decides when to save. A save at nearly every step shows that the other node is notified of each."""
    by_time = ["checkpoint.every_steps=0", "checkpoint.every_seconds=0.001", "checkpoint.background=false", "epochs=1"]
    assert job.launch(overrides=by_time) == [0, 0], job.nodes.all_text()
    assert len(jobs.metrics(job.run_dir(0), "checkpoint")) > 5
    names = [[c.name for c in job.copies(node)] for node in (0, 1)]
    assert names[0] == names[1] and len(names[0]) == 2
    assert names[0] == [c.name for c in job.shared()][-2:]


@pytest.mark.parametrize("background", [True, False])
def test_a_disk_that_is_full_or_read_only_is_a_warning(ddprun_bin, data, tmp_path, calm, background):
    with small_disk(tmp_path / "disk", "560k") as disk:
        config = jobs.config(data, checkpoint={"local_dir": str(disk), "background": background})
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config)])
        assert done.returncode == 0, done.stderr
        assert "this node has no copy of the checkpoint of step 14" in done.stdout + done.stderr
        assert any("this node has no copy" in e["message"] for e in jobs.metrics(tmp_path / "run", "warning"))
        assert [p.name for p in disk.glob("run-*/copy-0/step-*")] == ["step-000000007"]
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(calm)


def test_a_folder_that_cannot_be_made_is_a_warning(ddprun_bin, data, tmp_path, calm):
    (tmp_path / "file").write_text("")
    config = jobs.config(data, checkpoint={"local_dir": str(tmp_path / "file")})
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config)])
    assert done.returncode == 0, done.stderr
    assert "this node keeps no copies of checkpoints until that is mended" in done.stdout + done.stderr
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(calm)


@pytest.mark.parametrize("local_dir,words", [
    ("copies", ["/checkpoint/local_dir", "absolute", '"copies"']),
    ("RUN", ["/checkpoint/local_dir", "in the run directory"]),
    ("RUN/checkpoints", ["/checkpoint/local_dir", "in the run directory"]),
])
def test_a_relative_path_and_the_run_directory_are_refused(ddprun_bin, data, tmp_path, local_dir, words):
    config = jobs.config(data, checkpoint={"local_dir": local_dir.replace("RUN", str(tmp_path / "run"))})
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config)])
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()
