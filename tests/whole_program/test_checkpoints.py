"""Tests of the checkpoints of whole jobs: saving during training, on a full disk, after checkpoints were removed, and while
workers are killed. Also tests the automatic interval, which limits the cost of saving."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess

import jobs
import pytest
from disks import small_disk


def launch(ddprun, folder, config: dict, *flags, workers=2, **env):
    file = jobs.write_config(folder / "train.json", config)
    return jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", folder / "run", *flags, file], **env)


def steps_there(run_dir: pathlib.Path) -> list[int]:
    return sorted(int(p.name[5:]) for p in (run_dir / "checkpoints").glob("step-?????????"))


def test_each_save_records_its_pause_and_duration(ddprun_bin, data, tmp_path):
    done = launch(ddprun_bin, tmp_path, jobs.config(data))
    assert done.returncode == 0, done.stderr
    saves = jobs.metrics(tmp_path / "run", "checkpoint")
    assert [e["step"] for e in saves] == [7, 14, 21, 28, 35, 40]
    for event in saves:
        assert event["pause_s"] > 0 and event["save_s"] > 0 and event["bytes"] > 0
        assert event["path"].endswith(f"step-{event['step']:09d}")
    assert jobs.report(tmp_path / "run")["checkpoints"]["published"] == 6
    assert steps_there(tmp_path / "run") == [28, 35, 40]


def test_background_saving_changes_no_bit(ddprun_bin, data, tmp_path):
    for name, background in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        done = launch(ddprun_bin, tmp_path / name, jobs.config(data, checkpoint={"background": background}))
        assert done.returncode == 0, done.stderr
    assert jobs.weights_digest(tmp_path / "with" / "run") == jobs.weights_digest(tmp_path / "without" / "run")
    assert jobs.losses(tmp_path / "with" / "run") == jobs.losses(tmp_path / "without" / "run")


def test_retention_follows_the_rules(ddprun_bin, data, tmp_path):
    done = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=3, checkpoint={"every_steps": 4, "keep": 2, "keep_every_steps": 15, "keep_best": 1}))
    assert done.returncode == 0, done.stderr
    evaluations = jobs.metrics(tmp_path / "run", "eval")
    best = max(evaluations, key=lambda e: (e["accuracy"], e["step"]))["step"]
    # Checkpoints are saved at steps 4, 8, ... 60, and the model is evaluated at 20, 40 and 60. With keep_every_steps 15, the
    # first checkpoints at or after 15, 30, 45 and 60 are kept: 16, 32, 48 and 60.
    assert steps_there(tmp_path / "run") == sorted({56, 60, 16, 32, 48, best})


def test_the_automatic_interval_is_reported_and_recorded(ddprun_bin, data, tmp_path):
    done = launch(ddprun_bin, tmp_path, jobs.config(data, checkpoint={"every": "auto", "every_steps": 0, "keep_best": 1}))
    assert done.returncode == 0, done.stderr
    message = jobs.metrics(tmp_path / "run", "checkpoint_interval")
    assert message and message[0]["failures"] == 0 and message[0]["mtbf_s"] >= 4 * 3600
    assert message[0]["interval_s"] >= 5
    assert "the checkpoint interval is now" in done.stdout


def test_an_interval_together_with_auto_is_refused(ddprun_bin, data, tmp_path):
    done = launch(ddprun_bin, tmp_path, jobs.config(data, checkpoint={"every": "auto"}))
    assert done.returncode == 2 and "/checkpoint/every_steps" in done.stderr


def test_metrics_and_ledger_survive_removed_checkpoints(ddprun_bin, data, tmp_path):
    config, run_dir = jobs.config(data), tmp_path / "run"
    assert launch(ddprun_bin, tmp_path, config).returncode == 0
    before = {name: (run_dir / name).read_bytes() for name in ("metrics.jsonl", "ledger/rank-00001.jsonl")}
    weights = jobs.weights_digest(run_dir)
    shutil.rmtree(run_dir / "checkpoints")
    done = launch(ddprun_bin, tmp_path, config)
    assert done.returncode == 0, done.stderr
    assert "metrics.jsonl.1" in done.stdout + done.stderr
    assert (run_dir / "metrics.jsonl.1").read_bytes() == before["metrics.jsonl"]
    assert (run_dir / "ledger.1" / "rank-00001.jsonl").read_bytes() == before["ledger/rank-00001.jsonl"]
    assert (run_dir / "tensorboard.1").is_dir()
    assert jobs.weights_digest(run_dir) == weights
    jobs.assert_each_sample_once(run_dir, 2)
    assert any("metrics.jsonl.1" in e["message"] for e in jobs.metrics(run_dir, "warning"))


def test_a_failure_before_the_first_checkpoint_renames_nothing(ddprun_bin, data, tmp_path):
    done = launch(ddprun_bin, tmp_path, jobs.config(data), DDPTRAIN_FAULT="kill rank=1 step=3")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "metrics.jsonl.1").exists()


@pytest.mark.parametrize("target", [None, "nowhere", "step-000000028"])
def test_the_latest_link_is_not_needed(ddprun_bin, data, tmp_path, target):
    assert launch(ddprun_bin, tmp_path, jobs.config(data)).returncode == 0
    latest = tmp_path / "run" / "checkpoints" / "latest"
    latest.unlink()
    if target:
        latest.symlink_to(target)
    done = launch(ddprun_bin, tmp_path, jobs.config(data))
    assert done.returncode == 0 and "already done" in done.stdout
    longer = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=3))
    assert longer.returncode == 0, longer.stderr
    assert "continuing from step 40" in longer.stdout
    assert latest.resolve(strict=True).name == "step-000000060"


def test_a_finished_run_names_the_damaged_checkpoints_it_skips(ddprun_bin, ddptrain_bin, data, tmp_path):
    """The run finishes with two epochs, and then again with three epochs. The test then truncates the newest checkpoint by a
    byte. The older checkpoint then determines whether the run must train more steps."""
    def configured(epochs: int) -> dict:
        return jobs.config(data, epochs=epochs, checkpoint={"every_steps": 100})

    for epochs in (2, 3):
        assert launch(ddprun_bin, tmp_path, configured(epochs)).returncode == 0
    checkpoints = tmp_path / "run" / "checkpoints"
    newest, older = checkpoints / "step-000000060", checkpoints / "step-000000040"
    (newest / "model.safetensors").write_bytes((newest / "model.safetensors").read_bytes()[:-1])
    message = f"the newest checkpoint is damaged: {newest}/model.safetensors has "
    done = launch(ddprun_bin, tmp_path, configured(2))
    assert done.returncode == 0 and f"is already done: 40 steps, checkpoint {older}" in done.stdout, done.stdout + done.stderr
    assert message in done.stderr and f"; {older} is used instead\n" in done.stderr, done.stderr
    alone = jobs.run([ddptrain_bin, "--run-dir", tmp_path / "run", tmp_path / "train.json"])
    assert alone.returncode == 0 and "already done" in alone.stdout and message in alone.stderr, alone.stderr
    measured = jobs.run([ddptrain_bin, "eval", tmp_path / "run"])
    assert measured.returncode == 0 and measured.stderr.startswith(f"ddptrain: {message}"), measured.stderr
    assert measured.stderr.endswith(f"; {older} is used instead\n") and measured.stderr.count("\n") == 1, measured.stderr
    again = launch(ddprun_bin, tmp_path, configured(3))
    assert again.returncode == 0 and "continuing from step 40" in again.stdout, again.stdout + again.stderr
    assert {p.name for p in checkpoints.glob("*.bad")} == {newest.name + ".bad"}


@pytest.mark.parametrize("background", [True, False])
def test_a_full_disk_stops_saving_and_not_training(ddprun_bin, data, tmp_path, background):
    """The disk has space for slightly more than one checkpoint. The second save fails, training continues to the end, and the
    last error message states what the user can do."""
    config = jobs.config(data, checkpoint={"keep": 1, "background": background, "wait_for_room_s": 0}, data={"ledger": False},
                         log={"every_steps": 1, "tensorboard": False})
    (tmp_path / "calm").mkdir()
    assert launch(ddprun_bin, tmp_path / "calm", config).returncode == 0
    with small_disk(tmp_path / "disk", "560k") as disk:
        full = launch(ddprun_bin, disk, config)
        assert full.returncode == 89, full.stdout + full.stderr
        assert "no restart, since a checkpoint cannot be read or saved" in full.stderr
        output = full.stdout + full.stderr
        assert "No space left on device" in output and "training continues" in output and "free disk space" in output.lower()
        # The saves at 21, 28 and 35 failed with the same error, which is not repeated.
        assert re.findall(r"(?m)^\[rank 0\].* step (\d+) could not be saved", full.stderr) == ["14", "40"], full.stderr
        assert steps_there(disk / "run") == [7]
        assert [e["step"] for e in jobs.metrics(disk / "run", "step")][-1] == 40
        assert any("step 14 could not be saved" in e["message"] for e in jobs.metrics(disk / "run", "warning"))
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        done = launch(ddprun_bin, disk, config)
        assert done.returncode == 0, done.stderr
        assert "continuing from step 7" in done.stdout
        assert jobs.weights_digest(disk / "run") == jobs.weights_digest(tmp_path / "calm" / "run")
        assert jobs.losses(disk / "run") == jobs.losses(tmp_path / "calm" / "run")


def test_other_data_under_the_same_path_is_refused(ddprun_bin, tmp_path):
    data = jobs.write_small_dataset(tmp_path / "data")
    done = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1))
    assert done.returncode == 0, done.stderr
    labels = data / "train-labels-idx1-ubyte"
    content = labels.read_bytes()
    labels.write_bytes(content[:8] + content[:7:-1])
    refused = launch(ddprun_bin, tmp_path, jobs.config(data))
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "the data differs from the data that this run started with" in refused.stderr and "--data-changed" in refused.stderr
    assert steps_there(tmp_path / "run") == [7, 14, 20]
    result = launch(ddprun_bin, tmp_path, jobs.config(data), "--data-changed")
    assert result.returncode == 0, result.stderr
    known = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=3))  # run.json has recorded the new data
    assert known.returncode == 0, known.stderr
    run = tmp_path / "run" / "run.json"
    # Earlier versions of ddptrain wrote run.json without the key "data".
    run.write_text(json.dumps({key: value for key, value in json.loads(run.read_text()).items() if key != "data"}))
    labels.write_bytes(content)
    unknown = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=4))
    assert unknown.returncode == 0, unknown.stderr


def test_the_last_save_waits_for_disk_space(ddprun_bin, data, tmp_path):
    config = jobs.config(data, checkpoint={"every_steps": 1000, "wait_for_room_s": 300}, data={"ledger": False},
                         log={"every_steps": 10, "tensorboard": False})
    with small_disk(tmp_path / "disk", "200k") as disk:
        job = jobs.start([ddprun_bin, "--nproc-per-node", 2, "--run-dir", disk / "run", jobs.write_config(tmp_path / "train.json", config)])
        message = next(line for line in job.stderr if "retries for up to 300 s: free disk space" in line)
        assert "the final checkpoint (step 40)" in message and "No space left" in message
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        output, errors = job.communicate(timeout=60)
        assert job.returncode == 0, output + errors
        assert "free disk space" not in errors
        assert steps_there(disk / "run") == [40]


def test_a_ledger_that_cannot_be_written_is_a_warning(ddprun_bin, data, tmp_path):
    assert launch(ddprun_bin, tmp_path, jobs.config(data, epochs=1)).returncode == 0
    shutil.rmtree(tmp_path / "run" / "ledger")
    (tmp_path / "run" / "ledger").symlink_to("/dev/full")
    done = launch(ddprun_bin, tmp_path, jobs.config(data))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "writes no ledger" in done.stdout + done.stderr
    (tmp_path / "run" / "ledger").unlink()
    (tmp_path / "run" / "ledger").mkdir()
    for rank in (0, 1):
        (tmp_path / "run" / "ledger" / f"rank-0000{rank}.jsonl").symlink_to("/dev/full")
    done = launch(ddprun_bin, tmp_path, jobs.config(data, epochs=3))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the ledger ends at step 40" in done.stdout + done.stderr


def kill_rank_0_at(job: subprocess.Popen, lines: int) -> None:
    """Kills the worker of rank 0 with SIGKILL after `lines` lines of the console output."""
    pid = None
    for line in job.stdout:
        event = json.loads(line)
        if event["event"] == "worker_started" and event["rank"] == 0:
            pid = event["pid"]
        lines -= 1
        if lines <= 0 and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.long)])
def test_kills_at_any_moment_of_a_constantly_saving_run(ddprun_bin, data, tmp_path, kills):
    """The job saves after every step, so a save is nearly always in progress. No kill may lose or damage a published
    checkpoint, and the results must be bit-identical to the results of a run without kills."""
    epochs = 2 if kills < 10 else 10
    config = jobs.config(data, epochs=epochs, checkpoint={"every_steps": 1, "keep": 2}, model={"type": "mlp", "hidden": [256]})
    (tmp_path / "calm").mkdir()
    assert launch(ddprun_bin, tmp_path / "calm", config).returncode == 0
    seed = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"DDPRUN_TEST_SEED={seed}")
    choose = random.Random(seed)
    file = jobs.write_config(tmp_path / "train.json", config)
    command = [ddprun_bin, "--json", "--nproc-per-node", 2, "--max-restarts", 0, "--run-dir", tmp_path / "run", file]
    newest = 0
    for _ in range(kills):
        job = jobs.start(command)
        kill_rank_0_at(job, choose.randrange(8, 60))
        job.communicate(timeout=60)
        assert not list((tmp_path / "run" / "checkpoints").glob("*.bad"))
        steps = steps_there(tmp_path / "run")
        assert not steps or steps[-1] >= newest
        newest = steps[-1] if steps else 0
    done = launch(ddprun_bin, tmp_path, config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(tmp_path / "calm" / "run")
    assert jobs.losses(tmp_path / "run") == jobs.losses(tmp_path / "calm" / "run")
    jobs.assert_each_sample_once(tmp_path / "run", epochs)
    assert not [p.name for p in (tmp_path / "run" / "checkpoints").iterdir() if p.name.startswith(".tmp")]
