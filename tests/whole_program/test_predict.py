"""Tests of `ddptrain predict`. For each input line, it prints the prediction of the saved model as a line of JSON. Error
messages must name the invalid lines."""

import json
import pathlib
import subprocess

import jobs
import pytest
from test_gpt import BLOCK, config, data  # noqa: F401  (data is a fixture)


def predicted(ddptrain, arguments: list, lines: list[str]) -> tuple[int, list[dict], str]:
    done = subprocess.run([ddptrain, "predict", *arguments], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120, env=jobs.clean_environment())
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture(scope="module")
def images(ddprun_bin, tmp_path_factory) -> pathlib.Path:
    """Returns a finished run on the small data set. The mean and standard deviation for normalization are computed from the
    training images."""
    folder = tmp_path_factory.mktemp("images")
    train = jobs.write_config(folder / "train.json", jobs.config(jobs.write_small_dataset(folder / "data"), epochs=1))
    assert jobs.run([ddprun_bin, "--run-dir", folder / "run", train]).returncode == 0
    return folder


def test_predicted_classes_match_the_evaluation(ddptrain_bin, images):
    """Predicts all 200 images of the test set in smaller batches. The accuracy and loss of the predictions must equal the
    results of the last evaluation of the run."""
    test = (images / "data/t10k-images-idx3-ubyte").read_bytes()[16:]
    labels = list((images / "data/t10k-labels-idx1-ubyte").read_bytes()[8:])
    lines = [json.dumps({"id": f"image {i}", "pixels": list(test[784 * i:784 * (i + 1)])}) for i in range(len(labels))]
    code, answers, error = predicted(ddptrain_bin, [images / "run", "eval_batch_size=64"], lines)
    assert code == 0, error
    assert [answer["id"] for answer in answers] == [f"image {i}" for i in range(200)]
    expected = jobs.metrics(images / "run", "eval")[-1]
    assert sum(answer["class"] == label for answer, label in zip(answers, labels, strict=True)) / 200 == pytest.approx(expected["accuracy"])
    numpy = pytest.importorskip("numpy")
    loss = -numpy.mean([numpy.log(answer["probabilities"][label]) for answer, label in zip(answers, labels)])
    assert loss == pytest.approx(expected["loss"], rel=1e-4)
    assert all(answer["probability"] == max(answer["probabilities"]) == answer["probabilities"][answer["class"]] for answer in answers)


@pytest.mark.parametrize("line,words", [
    ("{", "stdin, line 3: expected one JSON object per line"),
    ('{"pixels": [1, 2]}', 'stdin, line 3: expected "pixels" with 784 integers from 0 to 255 (1 x 28 x 28)'),
    (json.dumps({"pixels": [256] * 784}), "stdin, line 3: "),
    (json.dumps({"text": "no"}), "stdin, line 3: "),
    ('{"id": ' + "[" * 200000 + "]" * 200000 + ', "pixels": []}', 'stdin, line 3: "id": expected a string or a number'),
])
def test_a_bad_line_is_named_after_earlier_answers(ddptrain_bin, images, line, words):
    good = json.dumps({"pixels": [0] * 784})
    code, answers, error = predicted(ddptrain_bin, [images / "run"], [good, "", line, good])
    assert code == 2 and words in error and len(answers) == 1, error


def test_unreadable_input_is_not_empty_input(ddptrain_bin, images):
    done = jobs.run([ddptrain_bin, "predict", images / "run", "--input", images])
    assert done.returncode == 2 and f"--input: {images} cannot be read" in done.stderr, done.stderr


def test_a_nan_model_gives_no_answer(ddptrain_bin, images, tmp_path):
    """The model's outputs are NaN. Without a check, class 0 would be reported as the most likely class."""
    numpy, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    weights = safetensors.load_file(images / "run/checkpoints/latest/model.safetensors")
    safetensors.save_file({name: numpy.full_like(each, numpy.nan) for name, each in weights.items()}, tmp_path / "nan.safetensors")
    code, answers, error = predicted(ddptrain_bin, [tmp_path / "nan.safetensors", "--config", images / "train.json"], [json.dumps({"pixels": [0] * 784})])
    assert code == 88 and answers == [] and "the model's outputs are NaN or infinite" in error, error


def test_a_table_model_is_refused(ddprun_bin, ddptrain_bin, tmp_path):
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("a,b,y\n" + "1,2,0\n2,1,1\n" * 8, encoding="utf-8")
    train = {"name": "t", "epochs": 1, "batch_size": 4, "model": {"type": "mlp", "hidden": [4]},
             "data": {"type": "csv", "dir": str(tmp_path), "train_table": "train.csv", "test_table": "test.csv", "target": "y", "classes": 2}}
    (tmp_path / "train.json").write_text(json.dumps(train), encoding="utf-8")
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", tmp_path / "train.json"]).returncode == 0
    code, answers, error = predicted(ddptrain_bin, [tmp_path / "run"], ["{}"])
    assert code == 2 and not answers and "predict supports data.type idx, cifar10, cifar100, tokens and table" in error, error


def test_a_text_has_a_loss_and_a_next_token(ddprun_bin, ddptrain_bin, data, tmp_path):  # noqa: F811
    """The predicted next token must be the token that `ddptrain generate` chooses."""
    train = jobs.write_config(tmp_path / "train.json", config(data, model={"type": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 32}, max_steps=5))
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train]).returncode == 0
    text = (data / "val.txt").read_bytes().decode("ascii", "replace")[:BLOCK]
    tokens = list(text.encode())[:BLOCK]
    code, answers, error = predicted(ddptrain_bin, [tmp_path / "run"], [json.dumps({"tokens": tokens}), json.dumps({"text": bytes(tokens).decode()}), '{"tokens": [65], "id": 7}'])
    assert code == 0, error
    assert answers[0] == answers[1] and answers[0]["tokens"] == BLOCK and 0 < answers[0]["loss"] < 6
    assert answers[2]["id"] == 7 and answers[2]["loss"] is None and 0 < answers[2]["probability"] <= 1
    one = jobs.run([ddptrain_bin, "generate", tmp_path / "run", "--json", "--temperature", 0, "--max-tokens", 1, "--prompt-tokens", ",".join(map(str, tokens))])
    assert json.loads(one.stdout)["tokens"] == [answers[0]["next_token"]]
    (tmp_path / "lines").write_text(json.dumps({"tokens": [300]}) + "\n", encoding="utf-8")
    refused = jobs.run([ddptrain_bin, "predict", tmp_path / "run", "--input", tmp_path / "lines"])
    assert refused.returncode == 2 and 'lines, line 1: expected "text" with a string, or "tokens" with integers below 256' in refused.stderr


def test_an_unknown_token_is_named(ddprun_bin, ddptrain_bin, tmp_path):
    for name in ("train.txt", "val.txt"):
        (tmp_path / name).write_bytes(b"plain ASCII." * 40 * BLOCK)
    content = config(tmp_path, model={"type": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 32}, max_steps=1)
    content["data"]["vocab_size"] = 128
    train = jobs.write_config(tmp_path / "train.json", content)
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train]).returncode == 0
    code, answers, error = predicted(ddptrain_bin, [tmp_path / "run"], ['{"text": "plain"}', '{"text": "é"}'])
    assert code == 2 and len(answers) == 1 and 'line 2: "text" has token 195; the model has 128 tokens, numbered from 0 (data.vocab_size)' in error, error
