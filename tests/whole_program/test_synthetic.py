"""Tests of generated samples. A job with generated samples needs no data file. Its model must learn, and failures and restarts
must not change any bit of the results."""

import json
import math
import pathlib

import jobs
import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = 400
ADAMW = {"type": "adamw", "lr": 0.003}
KINDS = {
    "classes": ({"type": "mlp", "hidden": [32]}, {"shape": [64], "classes": 4}),
    "numbers": ({"type": "mlp", "hidden": [32]}, {"shape": [8], "predict": "number"}),
    "images": ({"type": "cnn"}, {"shape": [1, 12, 12], "classes": 4}),
    "tokens": ({"type": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 32}, {"block_size": 16, "vocab_size": 20}),
    "tokens of a llama": ({"type": "llama", "n_layer": 1, "n_head": 2, "n_embd": 32}, {"block_size": 16, "vocab_size": 20}),
}


def config(kind: str, **more) -> dict:
    model, data = KINDS[kind]
    return {"name": "made-up", "model": model, "data": {"type": "synthetic", **data, "train_samples": SAMPLES, "test_samples": 100, "ledger": True},
            "epochs": 6, "batch_size": 16, "optimizer": ADAMW, "checkpoint": {"every_steps": 7}, "log": {"every_steps": 1, "tensorboard": False}, **more}


def trained(ddprun, run_dir, train, *changes, workers: int = 2, **env):
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", run_dir, train, *changes], **env)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_without_a_file(ddprun_bin, tmp_path, kind):
    trained(ddprun_bin, tmp_path / "run", jobs.write_config(tmp_path / "train.json", config(kind, eval_every_epochs=6)))
    loss = [line["loss"] for line in jobs.metrics(tmp_path / "run", "eval")]
    first = jobs.losses(tmp_path / "run")[0][1]
    if kind.startswith("tokens"):
        # The lowest possible loss of a token model: one token in four is drawn at random from 20 tokens, of which 19 differ
        # from the predictable token.
        known = 0.75 + 0.25 / 20
        floor = -known * math.log(known) - (1 - known) * math.log(0.25 / 20)
        # The loss of the evaluation can be slightly below this minimum, because the evaluation data has only 1,600 tokens.
        assert first > 0.9 * math.log(20) and floor - 0.1 < loss[-1] < 0.7 * math.log(20)
    else:
        assert loss[-1] < 0.7 * first, (first, loss)
    jobs.assert_each_sample_once(tmp_path / "run", epochs=6, samples=SAMPLES)


@pytest.mark.parametrize("kind", ["classes", "numbers", "tokens"])
def test_a_lost_worker_and_other_world_sizes_change_no_bit(ddprun_bin, tmp_path, kind):
    train = jobs.write_config(tmp_path / "train.json", config(kind, epochs=2, data={**config(kind)["data"], "validation": {"samples": 40}}))
    trained(ddprun_bin, tmp_path / "calm", train)
    trained(ddprun_bin, tmp_path / "killed", train, DDPTRAIN_FAULT="kill rank=1 step=12 phase=backward")
    for workers, steps in ((2, 6), (1, 13), (3, 60)):
        trained(ddprun_bin, tmp_path / "changing", train, f"max_steps={steps}", workers=workers)
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    for run in ("calm", "killed", "changing"):
        jobs.assert_each_sample_once(tmp_path / run, epochs=2, samples=SAMPLES - 40)


def test_other_samples_have_another_fingerprint(ddprun_bin, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config("classes", epochs=1))
    trained(ddprun_bin, tmp_path / "run", train)
    refused = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "epochs=2", "data.shape=[32]"])
    assert refused.returncode != 0 and "/data/shape" in refused.stderr, refused.stderr


def test_an_unsuitable_shape_is_refused(ddprun_bin, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config("images"))
    refused = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "data.shape=[64]"])
    assert refused.returncode == 2 and "expected 3 sizes (channels, height and width)" in refused.stderr, refused.stderr


def test_synthetic_models_are_evaluated_and_generate(ddprun_bin, ddptrain_bin, tmp_path):
    trained(ddprun_bin, tmp_path / "run", jobs.write_config(tmp_path / "train.json", config("tokens", epochs=1)))
    evaluated = jobs.run([ddptrain_bin, "eval", "--json", tmp_path / "run"])
    assert json.loads(evaluated.stdout)["loss"] == jobs.metrics(tmp_path / "run", "eval")[-1]["loss"], evaluated.stderr
    written = jobs.run([ddptrain_bin, "generate", tmp_path / "run", "--prompt-tokens", "3,4", "--max-tokens", "5"])
    assert written.returncode == 0 and len(written.stdout.split()) == 7, written.stderr
    refused = jobs.run([ddptrain_bin, "generate", tmp_path / "run"])
    assert refused.returncode == 2
    assert refused.stderr.rstrip().endswith("the model was trained on synthetic tokens, so a text cannot be converted to its tokens; use --prompt-tokens N,N,..."), refused.stderr


def test_the_schema_requires_a_folder_only_for_real_data():
    schema = json.loads((ROOT / "configs/train.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(jobs.shipped_config("synthetic"), schema)
    for data in ({"type": "idx"}, {}, {"type": "synthetic", "dir": "."}, {"dir": ".", "shape": [3]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"data": data}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


def test_the_shipped_config_runs(ddprun_bin, tmp_path):
    done = trained(ddprun_bin, tmp_path / "run", ROOT / "configs/synthetic.json", "max_steps=2", "data.test_samples=8")
    assert "done: test accuracy" in done.stdout
