"""Faults of all kinds, drawn from a seed, injected into a real job by --chaos: in the end the weights are those of the undisturbed
run, the report has counted each fault, and nothing is left. bench/soak_bench.py is the long form."""

import json
import pathlib

import jobs
import pytest
import rehearsal


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> rehearsal.Place:
    """With an undisturbed run."""
    return rehearsal.Place(tmp_path_factory.mktemp("soak"))


@pytest.fixture(scope="module")
def config(ddprun_bin, place) -> dict:
    config = jobs.config(jobs.write_small_dataset(place.folder / "data"), epochs=12, ddp=rehearsal.COMPARED)
    place.train(ddprun_bin, "calm", config, 1, [])
    return config


@pytest.mark.parametrize("agents,seed,count,hangs", [(1, 1, 20, 2), (2, 2, 6, 1)])
def test_faults_change_nothing(ddprun_bin, place, config, agents, seed, count, hangs):
    faults = rehearsal.draw(seed, count, steps=12 * 20, workers=2, hangs=hangs)
    text = place.train(ddprun_bin, f"run-{agents}", config, agents, rehearsal.flags(place.folder, faults))
    wrong = place.what_is_wrong(jobs.weights_digest(place.folder / "calm"), f"run-{agents}", faults)
    assert not wrong, f"seed {seed}: {'; '.join(wrong)}\n{text}"
    run = place.folder / f"run-{agents}"
    assert jobs.losses(run) == jobs.losses(place.folder / "calm")
    jobs.assert_each_sample_once(run, 12)


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
