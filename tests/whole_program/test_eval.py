"""Tests of `ddptrain eval`. It must report the same metrics as the last evaluation of the run, for each format of saved
weights."""

import json
import pathlib
import shutil

import jobs
import pytest


def finished(ddprun, folder: pathlib.Path, **changes) -> pathlib.Path:
    train = jobs.write_config(folder / "train.json", jobs.config(jobs.write_small_dataset(folder / "data"), epochs=1, **changes))
    done = jobs.run([ddprun, "--run-dir", folder / "run", train])
    assert done.returncode == 0, done.stderr
    return folder / "run"


def figures(line: dict) -> dict:
    return {name: line[name] for name in ("loss", "accuracy", "samples")}


def test_eval_reproduces_the_runs_metrics(ddprun_bin, ddptrain_bin, tmp_path):
    """The evaluations of this run use the moving average of the weights. `ddptrain eval` must use it, too."""
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


@pytest.fixture(scope="module")
def places(ddprun_bin, ddptrain_bin, tmp_path_factory) -> dict[str, pathlib.Path]:
    """A user may pass these paths to `ddptrain eval`: a run, folders and files in a run, and paths that contain no model."""
    folder = tmp_path_factory.mktemp("eval")
    run = finished(ddprun_bin, folder, max_steps=1)
    empty, adapter, exported = folder / "empty", folder / "adapter", folder / "model.ddp"
    for each in (empty, adapter, exported):
        each.mkdir()
    (empty / "config.json").write_bytes((run / "config.json").read_bytes())
    (adapter / "adapter_config.json").write_text("{}")
    (exported / "train.graph").write_text("ddprun graph 1\n")
    broken = folder / "broken"
    shutil.copytree(run, broken, symlinks=True)
    for manifest in broken.glob("checkpoints/step-*/manifest.json"):
        manifest.unlink()
    return {"RUN": run, "DATA": folder / "data", "EMPTY": empty, "ADAPTER": adapter, "EXPORTED": exported, "BROKEN": broken, "TRAIN": folder / "train.json"}


@pytest.mark.parametrize("arguments,words", [
    ([], "from is required; see ddptrain eval --help"),
    (["RUN", "model.hidden=[33]"], "does not match the model of the config: "),
    (["RUN", "data.dir=none"], "none"),
    (["RUN", "--jsn"], "unknown flag --jsn. Did you mean '--json'? See ddptrain eval --help"),
    (["RUN", "--metric", "f1"], "unknown flag --metric. See ddptrain eval --help"),
    (["RUN", "checkpoint.keep_best=1", "checkpoint.best_by=f1", "checkpoint.best_is=highest"],
     "uses the metric 'f1' (checkpoint.best_by), which the evaluation of this model does not report; its metrics are loss, accuracy"),
    (["RUN", "accuracy"], "override 'accuracy': expected KEY=VALUE"),
    (["nothing"], "nothing: No such file or directory; expected a run directory, a checkpoint's folder such as RUN_DIR/checkpoints/latest, or a safetensors file"),
    (["RUN/checkpoints/step-000000009"], "step-000000009: No such file or directory"),
    (["DATA"], "data is neither a run directory, which has a folder \"checkpoints\", nor a checkpoint, which has a manifest.json"),
    (["EMPTY"], "empty is a run directory without checkpoints: no checkpoint was saved yet"),
    (["BROKEN"], "checkpoints has no valid checkpoint:"),
    (["ADAPTER"], "adapter contains only low-rank updates, without the weights of their model: use the checkpoint that they come from"),
    (["EXPORTED"], "model.ddp is an exported model, not a checkpoint: to start from its weights, set model.path to it"),
    (["TRAIN"], "does not contain the config of its model; pass the train.json of its run with --config"),
])
def test_invalid_arguments_are_refused_in_one_line(ddptrain_bin, places, arguments, words):
    given = []
    for argument in arguments:
        first, slash, rest = argument.partition("/")
        given.append(f"{places[first]}{slash}{rest}" if first in places else argument)
    done = jobs.run([ddptrain_bin, "eval", *given])
    assert done.returncode == 2 and words in done.stderr and done.stdout == "", done.stderr


def test_a_missing_buffer_is_reported(ddprun_bin, ddptrain_bin, tmp_path):
    """`ddptrain eval` refuses weights that lack a batch norm statistic. If it accepted them, it would evaluate the model with
    the initial statistics and not with the trained statistics. In PyTorch, load_state_dict() reports the missing buffer
    too."""
    safetensors = pytest.importorskip("safetensors.numpy")
    run = finished(ddprun_bin, tmp_path, max_steps=2, model={"type": "resnet20"})
    weights = safetensors.load_file(run / "checkpoints/latest/model.safetensors")
    lacking = next(name for name in weights if name.endswith("running_var"))
    without = {name: each for name, each in weights.items() if name != lacking and not name.endswith("num_batches_tracked")}
    safetensors.save_file(without, tmp_path / "w.safetensors")
    done = jobs.run([ddptrain_bin, "eval", tmp_path / "w.safetensors", "--config", tmp_path / "train.json"])
    assert done.returncode == 2 and f"does not match the model of the config: 1 tensor is missing: {lacking}" in done.stderr, done.stderr
    safetensors.save_file({**without, lacking: weights[lacking]}, tmp_path / "w.safetensors")
    measured = [jobs.run([ddptrain_bin, "eval", *model, "--json"]) for model in ([run], [tmp_path / "w.safetensors", "--config", tmp_path / "train.json"])]
    assert measured[0].returncode == 0 and measured[0].stdout == measured[1].stdout, measured[1].stderr


def test_the_checkpoint_folder_stands_for_its_run(ddptrain_bin, places):
    run, folder = (jobs.run([ddptrain_bin, "eval", "--json", place]) for place in (places["RUN"], places["RUN"] / "checkpoints"))
    assert folder.returncode == 0 and folder.stdout == run.stdout, folder.stderr
