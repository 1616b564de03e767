"""Tests of recovery from checkpoints. A worker fails at some point of a run. All workers must restart from the newest
checkpoint, and the final results must be bit-identical to the results of a run without faults."""

import pathlib

import jobs
import pytest

EPOCHS = 2


def train(ddprun, folder: pathlib.Path, dataset: pathlib.Path, workers: int, fault: str = "", **changes):
    folder.mkdir(exist_ok=True)
    config = jobs.write_config(folder / "train.json", jobs.config(dataset, **changes))
    command = [ddprun, "--recovery", "checkpoint", "--nproc-per-node", workers, "--run-dir", folder / "run", config]
    done = jobs.run(command, DDPTRAIN_FAULT=fault)
    return done, folder / "run"


@pytest.fixture(scope="module")
def undisturbed(ddprun_bin, data, tmp_path_factory):
    """Returns undisturbed(workers), which runs the job without faults and returns the run directory. The job runs only once for
    each number of workers."""
    runs = {}

    def of(workers: int) -> pathlib.Path:
        if workers not in runs:
            done, run_dir = train(ddprun_bin, tmp_path_factory.mktemp(f"undisturbed-{workers}") / "job", data, workers)
            assert done.returncode == 0, done.stderr
            runs[workers] = run_dir
        return runs[workers]

    return of


def assert_same_run(run_dir: pathlib.Path, reference: pathlib.Path) -> None:
    assert jobs.weights_digest(run_dir) == jobs.weights_digest(reference)
    assert jobs.losses(run_dir) == jobs.losses(reference)
    jobs.assert_each_sample_once(run_dir, EPOCHS)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_config_gives_the_same_bits(ddprun_bin, data, tmp_path, undisturbed, workers):
    done, run_dir = train(ddprun_bin, tmp_path / "again", data, workers)
    assert done.returncode == 0, done.stderr
    assert_same_run(run_dir, undisturbed(workers))


@pytest.mark.parametrize("model", [{"type": "cnn"}, {"type": "resnet18"}])
def test_convolutions_and_batch_norm_resume_bitwise(ddprun_bin, tiny_images, tmp_path, model):
    short = {"model": model, "data": {"train_samples": 48, "test_samples": 20}, "batch_size": 8, "epochs": 1,
             "checkpoint": {"every_steps": 2, "keep": 2}, "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9}}
    done, calm = train(ddprun_bin, tmp_path / "calm", tiny_images, 2, **short)
    assert done.returncode == 0, done.stderr
    done, struck = train(ddprun_bin, tmp_path / "struck", tiny_images, 2, "kill rank=1 step=5", **short)
    assert done.returncode == 0, done.stderr
    assert jobs.weights_digest(struck) == jobs.weights_digest(calm)


def test_augmentation_and_dropout_are_the_same_after_a_restart(ddprun_bin, data, tmp_path):
    random = {"model": {"type": "mlp", "hidden": [32], "dropout": 0.3}, "data": {"augment": {"crop_padding": 2, "flip": True}}}
    done, calm = train(ddprun_bin, tmp_path / "calm", data, 2, **random)
    assert done.returncode == 0, done.stderr
    done, struck = train(ddprun_bin, tmp_path / "struck", data, 2, "kill rank=1 step=13", **random)
    assert done.returncode == 0, done.stderr
    assert_same_run(struck, calm)


def test_the_next_start_continues_a_failed_one(ddprun_bin, data, tmp_path, undisturbed):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    command = [ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 0, "--run-dir", tmp_path / "run", config]
    failed = jobs.run(command, DDPTRAIN_FAULT="exit=7 rank=1 step=16")
    assert failed.returncode == 7, failed.stderr
    resumed = jobs.run(command)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_run(tmp_path / "run", undisturbed(2))
    again = jobs.run(command)
    assert again.returncode == 0
    assert "already done" in again.stdout + again.stderr


def test_a_corrupt_newest_checkpoint_is_set_aside(ddprun_bin, data, tmp_path, undisturbed):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"background": False}))
    command = [ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 0, "--run-dir", tmp_path / "run", config]
    jobs.run(command, DDPTRAIN_FAULT="exit=7 rank=1 step=16")
    newest = (tmp_path / "run" / "checkpoints" / "latest").resolve()
    assert newest.name == "step-000000014"
    file = newest / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)
    done = jobs.run(command)
    assert done.returncode == 0, done.stderr
    assert "step-000000014" in done.stdout + done.stderr
    assert list((tmp_path / "run" / "checkpoints").glob("*.bad*"))
    assert_same_run(tmp_path / "run", undisturbed(2))


def test_it_refuses_to_start_over_without_a_valid_checkpoint(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"background": False}))
    command = [ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 0, "--run-dir", tmp_path / "run", config]
    jobs.run(command, DDPTRAIN_FAULT="exit=7 rank=1 step=16")
    for file in (tmp_path / "run" / "checkpoints").glob("step-*/model.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    done = jobs.run(command)
    assert done.returncode == 87, done.stderr
    assert "model.safetensors" in done.stderr and "--fresh" in done.stderr
    fresh = jobs.run([*command[:1], "--fresh", *command[1:]])
    assert fresh.returncode == 0, fresh.stderr
    assert (tmp_path / "run.1").is_dir()


def test_more_epochs_continue_a_finished_run(ddprun_bin, data, tmp_path, undisturbed):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=1))
    command = [ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config]
    assert jobs.run(command).returncode == 0
    longer = jobs.run([*command, "epochs=2"])
    assert longer.returncode == 0, longer.stderr
    assert_same_run(tmp_path / "run", undisturbed(2))


def test_another_world_size_resumes_in_mid_epoch(ddprun_bin, data, tmp_path):
    # The number of samples is 640 = 21 * 30 + 10, so the last batch of an epoch is smaller.
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, batch_size=30))
    for workers, fault, code in ((2, "exit=7 rank=1 step=10", 7), (1, "exit=7 rank=0 step=25", 7), (3, "", 0)):
        done = jobs.run([ddprun_bin, "--nproc-per-node", workers, "--max-restarts", 0, "--run-dir", tmp_path / "run", config],
                        DDPTRAIN_FAULT=fault)
        assert done.returncode == code, done.stderr
    assert [step for step, _ in jobs.losses(tmp_path / "run")] == list(range(1, 45))
    jobs.assert_each_sample_once(tmp_path / "run", EPOCHS)
