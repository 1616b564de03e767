"""Tests that every user mistake ends in one clear error. The error must state what was expected, what was found, where, and
what to do. No training state may be lost."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess

import jobs
import pytest


def refused(done: subprocess.CompletedProcess, *words: str) -> None:
    assert done.returncode == 2, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    for word in words:
        assert word in done.stderr, f"{word!r} is not in: {done.stderr}"
    assert "terminate called" not in done.stderr and "Traceback" not in done.stderr


def launch(ddprun, tmp_path, content: dict | str, *overrides, workers: int = 2, flags=()):
    path = tmp_path / "train.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", tmp_path / "run", *flags, path, *overrides])


def test_no_such_file(ddprun_bin, tmp_path):
    refused(jobs.run([ddprun_bin, tmp_path / "missing.json"]), "missing.json", "No such file")


@pytest.mark.parametrize("text,words", [
    ('{"name": "x",\n "data": {"dir": "/d"},\n "epochs": 3,,}', ["train.json:3:14"]),
    ('{"data": {"dir": "/d"}, "optimzer": {}}', ["optimzer", "'optimizer'", "train.json:1:25"]),
    ('{"data": {"dir": "/d"},\n "epochs": "three"}', ["train.json:2:12", "/epochs", "integer", "string"]),
    ('{"data": {"dir": "/d"},\n "epochs": 0}', ["train.json:2:12", "/epochs", "0"]),
    ('{"epochs": 1}', ["/data/dir"]),
    ('{"data": {"dir": "/d"}, "epochs": 1, "epochs": 2}', ["epochs"]),
    ('[]', ["object"]),
    ('', ["train.json"]),
])
def test_config_errors_have_a_position(ddprun_bin, tmp_path, text, words):
    refused(launch(ddprun_bin, tmp_path, text), *words)
    assert not (tmp_path / "run").exists()


def test_all_config_errors_are_reported_together(ddprun_bin, tmp_path):
    refused(launch(ddprun_bin, tmp_path, '{"data": {"dir": "/d"}, "epochs": 0, "batchsize": 3}'), "/epochs", "batch_size")


def test_an_override_error_names_the_override(ddprun_bin, data, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(data), "optimizer.lr=fast"), "optimizer.lr=fast", "number")
    refused(launch(ddprun_bin, tmp_path, jobs.config(data), "optimizer.rl=1"), "optimizer.rl", "lr")


def test_dataset_missing(ddprun_bin, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(tmp_path / "nowhere")), str(tmp_path / "nowhere"), "idx", "data.dir")


def broken(data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(data, tmp_path / "broken"))


def test_dataset_truncated(ddprun_bin, data, tmp_path):
    folder = broken(data, tmp_path)
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-100])
    expected = 16 + jobs.TRAIN * 784
    refused(launch(ddprun_bin, tmp_path, jobs.config(folder)), "train-images-idx3-ubyte", str(expected), str(expected - 100))


def test_dataset_with_a_wrong_magic_number(ddprun_bin, data, tmp_path):
    folder = broken(data, tmp_path)
    shutil.copy(folder / "train-labels-idx1-ubyte", folder / "train-images-idx3-ubyte")
    refused(launch(ddprun_bin, tmp_path, jobs.config(folder)), "train-images-idx3-ubyte", "801", "803")


def test_dataset_with_a_damaged_gz(ddprun_bin, data, tmp_path):
    folder = broken(data, tmp_path)
    file = folder / "train-images-idx3-ubyte"
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(file.read_bytes(), 1)[:-2000])
    file.unlink()
    refused(launch(ddprun_bin, tmp_path, jobs.config(folder)), "train-images-idx3-ubyte.gz")


def test_dataset_with_a_label_out_of_range(ddprun_bin, data, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(data, data={"classes": 5})), "label", "5")
    # No step has been trained yet, so the invocation with the corrected config does not need --fresh.
    fixed = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1))
    assert fixed.returncode == 0, fixed.stderr


def test_a_fifo_dataset_is_refused_without_waiting(ddprun_bin, data, tmp_path):
    folder = broken(data, tmp_path)
    (folder / "train-images-idx3-ubyte").unlink()
    os.mkfifo(folder / "train-images-idx3-ubyte")
    refused(launch(ddprun_bin, tmp_path, jobs.config(folder)), str(folder / "train-images-idx3-ubyte"), "is not a regular file", "data.dir")


def test_dataset_behind_a_link_loop(ddprun_bin, data, tmp_path):
    folder = broken(data, tmp_path)
    (folder / "train-images-idx3-ubyte").unlink()
    (folder / "train-images-idx3-ubyte").symlink_to(folder / "train-images-idx3-ubyte")
    refused(launch(ddprun_bin, tmp_path, jobs.config(folder)), str(folder / "train-images-idx3-ubyte"), "Too many levels of symbolic links")


def test_dataset_folder_that_is_a_file(ddprun_bin, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config("/etc/passwd")), "'/etc/passwd' is not a folder", "data.dir")


def test_a_standard_deviation_that_makes_pixels_infinite(ddprun_bin, data, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(data), "data.mean=0.5", "data.std=1e-300"), "data.std=1e-300", "a number from 1e-06")


def test_a_batch_smaller_than_the_world(ddprun_bin, data, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(data, batch_size=2), workers=3), "batch_size", "2", "3")


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU here")
def test_more_workers_than_gpus(ddprun_bin, data, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(data, device="cuda")), "GPU")


def test_a_run_directory_of_another_config(ddprun_bin, data, tmp_path):
    first = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1))
    assert first.returncode == 0, first.stderr
    before = jobs.weights_digest(tmp_path / "run")
    for options in ([], ["--dry-run"]):
        refused(launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1, batch_size=64), flags=options), "/batch_size", "32", "64", "--fresh")
    assert jobs.weights_digest(tmp_path / "run") == before


def test_a_folder_that_is_not_a_run_directory(ddprun_bin, data, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("precious")
    refused(launch(ddprun_bin, tmp_path, jobs.config(data)), str(tmp_path / "run"))
    assert (tmp_path / "run" / "thesis.txt").read_text() == "precious"


def test_a_run_directory_in_use(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=10000))
    command = [ddprun_bin, "--json", "--nproc-per-node", 1, "--run-dir", tmp_path / "run", config]
    running = jobs.start(command)
    next(line for line in running.stdout if '"progress"' in line)
    for options in ([], ["--dry-run"]):
        refused(jobs.run([*command[:1], *options, *command[1:]]), str(tmp_path / "run"), str(running.pid))
    running.terminate()
    running.communicate(timeout=60)
    assert running.returncode == 85


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of the given size (default 3 MiB) and returns its folder."""
    mount = tmp_path / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs permission to mount a small tmpfs")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_stops_saving_and_not_training(ddprun_bin, data, tmp_path, small_disk):
    # The first checkpoint (0.3 MB of weights, 0.6 MB of optimizer moments) fits on the disk; later checkpoints do not.
    config = jobs.write_config(tmp_path / "train.json", jobs.config(
        data, model={"type": "mlp", "hidden": [96]}, epochs=1, checkpoint={"every_steps": 5, "keep": 8, "wait_for_room_s": 1}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", small_disk / "run", config])
    text = done.stdout + done.stderr
    assert "No space left on device" in text
    assert jobs.losses(small_disk / "run")[-1][0] >= 15  # training continued after the failed save
    assert (small_disk / "run" / "checkpoints" / "latest" / "manifest.json").exists()
    assert done.returncode != 0  # the last state could not be saved, so the job must report a failure


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_read_only_folder(ddprun_bin, data, tmp_path):
    mount = tmp_path / "read-only"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(mount)], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs permission to mount a read-only tmpfs")
    try:
        config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
        refused(jobs.run([ddprun_bin, "--run-dir", mount / "run", config]), str(mount / "run"), "Read-only")
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_initial_weights_of_another_shape(ddprun_bin, data, tmp_path):
    first = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1), workers=1)
    assert first.returncode == 0, first.stderr
    weights = (tmp_path / "run" / "checkpoints" / "latest").resolve() / "model.safetensors"
    other = tmp_path / "other"
    other.mkdir()
    refused(launch(ddprun_bin, other, jobs.config(data, model={"type": "mlp", "hidden": [16], "init": str(weights)}), workers=1),
            "fc1.weight", str(weights))


def test_a_file_in_place_of_the_checkpoint_folder(ddprun_bin, data, tmp_path):
    config = jobs.config(data, epochs=1)
    assert launch(ddprun_bin, tmp_path, config, "max_steps=1", workers=1).returncode == 0
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.rmtree(checkpoints)
    checkpoints.write_text("mine")
    refused(launch(ddprun_bin, tmp_path, config, "max_steps=1", workers=1), str(checkpoints), "found a file", "--fresh")
    assert checkpoints.read_text() == "mine"


def test_missing_initial_weights(ddprun_bin, data, tmp_path):
    refused(launch(ddprun_bin, tmp_path, jobs.config(data), "model.init=nope.safetensors"),
            "model.init", str(tmp_path / "nope.safetensors"), "No such file", "RUN_DIR/checkpoints/latest")


def test_fifo_initial_weights_are_refused_without_waiting(ddprun_bin, data, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    refused(launch(ddprun_bin, tmp_path, jobs.config(data), "model.init=fifo"), "model.init", str(tmp_path / "fifo"), "is not a regular file")


def test_initial_weights_of_a_run_directory(ddprun_bin, data, tmp_path):
    assert launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1), "max_steps=1", workers=1).returncode == 0
    first = tmp_path / "run"
    other = tmp_path / "other"
    other.mkdir()
    refused(launch(ddprun_bin, other, jobs.config(data), f"model.init={first}"),
            "model.init", f"{first} is a run directory", f"{first}/checkpoints/latest")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(launch(ddprun_bin, other, jobs.config(data), f"model.init={empty}", flags=["--fresh"]), "model.init", str(empty), "RUN_DIR/checkpoints/latest")


@pytest.mark.parametrize("broken_text", ["", "{", "[]"])
def test_broken_run_files_are_named_without_library_text(ddprun_bin, data, tmp_path, broken_text):
    config = jobs.config(data, epochs=1)
    assert launch(ddprun_bin, tmp_path, config, "max_steps=1", workers=1).returncode == 0
    manifest = tmp_path / "run" / "checkpoints" / "latest" / "manifest.json"
    manifest.write_text(broken_text)
    done = launch(ddprun_bin, tmp_path, config, "max_steps=2", workers=1)
    assert done.returncode == 87, done.stderr
    assert "manifest.json is not a checkpoint manifest (" in done.stderr and "json.exception" not in done.stderr
