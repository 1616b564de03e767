"""`ddptrain eval`: the figures that the run itself found at its end, from whatever the model is saved in."""

import json
import pathlib

import jobs
import pytest


def finished(ddprun, folder: pathlib.Path, **changes) -> pathlib.Path:
    train = jobs.write_config(folder / "train.json", jobs.config(jobs.write_small_dataset(folder / "data"), epochs=1, **changes))
    done = jobs.run([ddprun, "--run-dir", folder / "run", train])
    assert done.returncode == 0, done.stderr
    return folder / "run"


def figures(line: dict) -> dict:
    return {name: line[name] for name in ("loss", "accuracy", "samples")}


def test_it_finds_what_the_run_found(ddprun_bin, ddptrain_bin, tmp_path):
    """With an average of the weights, which evaluations use."""
    run = finished(ddprun_bin, tmp_path, optimizer={"type": "adamw", "lr": 1e-3, "ema": {"decay": 0.9}})
    expected = figures(jobs.metrics(run, "eval")[-1])
    weights = tmp_path / "weights.safetensors"
    assert jobs.run([ddptrain_bin, "--export-weights", run, weights]).returncode == 0
    for model in ([run], [run / "checkpoints/latest"], [weights, "--config", tmp_path / "train.json"], [run, "eval_batch_size=7"]):
        done = jobs.run([ddptrain_bin, "eval", *model, "--json"])
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found.keys() == expected.keys() and found == pytest.approx(expected, rel=1e-6 if len(model) == 2 and "=" in str(model[1]) else 0), model
    shown = jobs.run([ddptrain_bin, "eval", run]).stdout
    assert shown == f"test accuracy {100 * expected['accuracy']:.2f} %, loss {expected['loss']:.4f} on 200 samples\n"
    fewer = json.loads(jobs.run([ddptrain_bin, "eval", run, "data.test_samples=50", "--json"]).stdout)
    assert fewer["samples"] == 50


@pytest.mark.parametrize("arguments,words", [
    (["RUN", "model.hidden=[33]"], "is not of the model of the config: "),
    (["RUN", "data.dir=none"], "none"),
    (["RUN", "--jsn"], "unknown flag --jsn. Did you mean '--json'? See ddptrain eval --help"),
    (["DATA"], "config.json is not there, and nothing else says what model"),
])
def test_what_can_not_be_is_refused_in_a_line(ddprun_bin, ddptrain_bin, tmp_path, arguments, words):
    named = {"RUN": finished(ddprun_bin, tmp_path, max_steps=1), "DATA": tmp_path / "data"}
    done = jobs.run([ddptrain_bin, "eval", *(named.get(argument, argument) for argument in arguments)])
    assert done.returncode == 2 and words in done.stderr and done.stdout == "", done.stderr
