"""Faults of all kinds, drawn from a seed, injected into a real job by --chaos: in the end the weights are those of the undisturbed
run, the report has counted each fault, and nothing is left. bench/soak_bench.py is the long form."""

import json
import pathlib

import jobs
import pytest
import rehearsal


@pytest.mark.parametrize("seed", [1])
def test_twenty_faults_change_nothing(ddprun_bin, tmp_path, seed):
    data = jobs.write_small_dataset(tmp_path / "data")
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=12))
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", config])
    assert calm.returncode == 0, calm.stderr

    faults = rehearsal.draw(seed, count=20, steps=12 * 20, workers=2, hangs=2)
    before = rehearsal.things_that_stay(tmp_path)
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", *rehearsal.flags(tmp_path, faults), config],
                    timeout=300, TMPDIR=str(tmp_path))
    assert done.returncode == 0, f"seed {seed}\n{done.stderr}"
    assert rehearsal.struck(tmp_path / "run") == len(faults)
    report = jobs.report(tmp_path / "run")
    assert sum(report["failures"].values()) == len(faults), report["failures"]
    assert report["failures"] == rehearsal.expected_causes(faults)
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(tmp_path / "calm")
    assert jobs.losses(tmp_path / "run") == jobs.losses(tmp_path / "calm")
    jobs.assert_each_sample_once(tmp_path / "run", 12)
    assert rehearsal.things_that_stay(tmp_path) == before


def test_a_rehearsal_is_checked_before_anything_starts(ddprun_bin, tmp_path):
    data = jobs.write_small_dataset(tmp_path / "data")
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    wrong = jobs.run([ddprun_bin, "--chaos", "kill rank=1; explode", "--run-dir", tmp_path / "run", config])
    assert wrong.returncode == 2
    assert "--chaos: 'explode' is not understood" in wrong.stderr
    assert not pathlib.Path(tmp_path / "run").exists()
    script = jobs.run([ddprun_bin, "--chaos", "kill", "--no-python", "true"])
    assert script.returncode == 2
    assert "goes with a train.json" in script.stderr
    shown = jobs.run([ddprun_bin, "--dry-run", "--json", "--chaos", "kill rank=1 step=3", config], cwd=tmp_path)
    assert json.loads(shown.stdout)["environment"]["DDPTRAIN_CHAOS"] == "kill rank=1 step=3"
