"""Tests of a run directory whose lock file was removed, emptied or damaged between two invocations, or during a run. In all
these cases the run must resume."""

import json
import pathlib

import jobs
import pytest


@pytest.mark.parametrize("lose", [pathlib.Path.unlink, lambda lock: lock.write_text(""), lambda lock: lock.write_text("{\"host\"")],
                         ids=["removed", "empty", "torn"])
def test_a_lost_lock_file_does_not_block_resume(ddprun_bin, data, tmp_path, lose):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"every_steps": 1}))
    command = [ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config]
    for epochs in (1, 2, 3):
        assert jobs.run([*command, f"epochs={epochs}"]).returncode == 0
    writer = json.loads((tmp_path / "run/checkpoints/.writer").read_text())
    lose(tmp_path / "run/lock")
    done = jobs.run([*command, "epochs=4"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "restart" not in done.stdout
    assert json.loads((tmp_path / "run/lock").read_text())["term"] == writer["term"] + 1


def test_a_removed_lock_lets_a_second_start_end_the_first(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=100000, checkpoint={"every_steps": 50}))
    command = [ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config]
    first = jobs.start(command)
    jobs.wait_for(lambda: (tmp_path / "run/checkpoints/latest").exists(), "no checkpoint of the first start")
    (tmp_path / "run/lock").unlink()
    second = jobs.start(command)
    output, errors = first.communicate(timeout=120)
    assert first.returncode == 90, output[-3000:] + errors
    events = [json.loads(line) for line in output.splitlines()]
    failed = [event for event in events if event["event"] == "round_failed"]
    assert [(event["decision"], event["first_cause"]["cause"]) for event in failed] == [("give_up", "superseded")]
    assert "it is running" in failed[0]["first_cause"]["message"]
    second.terminate()
    output, errors = second.communicate(timeout=120)
    assert second.returncode == 85, output[-3000:] + errors
    assert "round_failed" not in output
