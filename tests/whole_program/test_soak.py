"""Tests with faults of all kinds, which are drawn from a seed and injected by --chaos into a training job. The final weights
must equal the weights of an undisturbed run, the report must count each fault, and no process or file may be left.
bench/soak_bench.py is a longer version of this test."""

import json
import pathlib

import jobs
import pytest
import rehearsal
from disks import stalling_disk


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> rehearsal.Place:
    """Returns the folder in which the jobs run. The fixture `config` adds the result of an undisturbed run to it."""
    return rehearsal.Place(tmp_path_factory.mktemp("soak"))


@pytest.fixture(scope="module")
def config(ddprun_bin, place) -> dict:
    config = jobs.config(jobs.write_small_dataset(place.folder / "data"), epochs=12, ddp=rehearsal.COMPARED)
    place.train(ddprun_bin, "calm", config, 1, [])
    return config


@pytest.mark.parametrize("agents,seed,count,hangs", [(1, 1, 20, 2), (2, 2, 6, 1)])
def test_faults_change_nothing(ddprun_bin, place, config, agents, seed, count, hangs):
    faults = rehearsal.draw(seed, rehearsal.Mix(count, hangs), steps=12 * 20, workers=2)
    text = place.train(ddprun_bin, f"run-{agents}", config, agents, rehearsal.flags(place.folder, faults, hang_timeout=2))
    wrong = place.describe_problem(jobs.weights_digest(place.folder / "calm"), f"run-{agents}", faults)
    assert not wrong, f"seed {seed}: {'; '.join(wrong)}\n{text}"
    run = place.folder / f"run-{agents}"
    assert jobs.losses(run) == jobs.losses(place.folder / "calm")
    jobs.assert_each_sample_once(run, 12)


def test_the_seed_determines_the_faults_of_a_soak():
    mixes = [rehearsal.Mix.of(seed) for seed in range(200)]
    counts = [mix.count for mix in mixes]
    assert min(counts) >= 300 and max(counts) <= 1000 and max(counts) - min(counts) > 500
    assert len({mix.kinds for mix in mixes}) > 100
    for seed, mix in enumerate(mixes[:20]):
        faults = rehearsal.draw(seed, mix, steps=10 * mix.count, workers=2)
        assert faults == rehearsal.draw(seed, rehearsal.Mix.of(seed), steps=10 * mix.count, workers=2)
        stalls = rehearsal.stalls(faults)
        assert len(stalls) == mix.stalls >= 0.03 * mix.count
        assert len(rehearsal.injected(faults)) == sum(rehearsal.expected_causes(faults).values()) == mix.count - mix.stalls
        assert all(1 <= seconds < rehearsal.HANG_TIMEOUT - 1 for _, seconds in stalls)
        assert {fault.split()[0] for fault in faults} == {*rehearsal.KINDS, *rehearsal.HANGS, rehearsal.STALL}
    assert not rehearsal.stalls(rehearsal.draw(1, rehearsal.Mix.of(1, stalls=False), steps=10000, workers=2))


@pytest.mark.long
def test_a_run_directory_that_stalls_between_faults_changes_nothing(ddprun_bin, place, config, tmp_path):
    with stalling_disk(tmp_path / "disk") as disk:
        stalled = rehearsal.Place(place.folder, disk=disk)
        faults = rehearsal.draw(5, rehearsal.Mix(10, hangs=1, stalls=3), steps=12 * 20, workers=2)
        text = stalled.train(ddprun_bin, "run", config, 1, rehearsal.flags(place.folder, faults), faults=faults)
        wrong = stalled.describe_problem(jobs.weights_digest(place.folder / "calm"), "run", faults)
        assert not wrong, f"{'; '.join(wrong)}\n{text}"


def test_a_rehearsal_is_checked_before_anything_starts(ddprun_bin, tmp_path):
    data = jobs.write_small_dataset(tmp_path / "data")
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    wrong = jobs.run([ddprun_bin, "--chaos", "kill rank=1; explode", "--run-dir", tmp_path / "run", config])
    assert wrong.returncode == 2
    assert "--chaos: cannot parse 'explode'" in wrong.stderr
    assert not pathlib.Path(tmp_path / "run").exists()
    script = jobs.run([ddprun_bin, "--chaos", "kill", "--no-python", "true"])
    assert script.returncode == 2
    assert "requires a train.json" in script.stderr
    shown = jobs.run([ddprun_bin, "--dry-run", "--json", "--chaos", "kill rank=1 step=3", config], cwd=tmp_path)
    assert json.loads(shown.stdout)["environment"]["DDPTRAIN_CHAOS"] == "kill rank=1 step=3"
