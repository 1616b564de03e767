"""Tests of `ddptrain generate`. It must choose the same tokens as PyTorch in Python with the same weights and seed, for each
format of saved weights. Models that cannot generate text are refused."""

import json
import pathlib
import shutil

import jobs
import pytest
from test_gpt import BLOCK, config, data  # noqa: F401  (data is a fixture)

MODEL = {"type": "gpt", "n_layer": 2, "n_head": 2, "n_embd": 32}


@pytest.fixture(scope="module")
def trained(ddprun_bin, ddptrain_bin, data, tmp_path_factory) -> pathlib.Path:  # noqa: F811
    """Trains a model and returns its run directory. A file next to it contains the exported weights."""
    run = tmp_path_factory.mktemp("trained") / "run"
    train = jobs.write_config(run.parent / "train.json", config(data, model=MODEL, optimizer={"type": "adamw", "lr": 0.01}))
    done = jobs.run([ddprun_bin, "--run-dir", run, train])
    assert done.returncode == 0, done.stderr
    assert jobs.run([ddptrain_bin, "--export-weights", run, run.parent / "weights.safetensors"]).returncode == 0
    return run


def generated(ddptrain, model: pathlib.Path, *options) -> dict:
    done = jobs.run([ddptrain, "generate", model, "--json", *options])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def chosen_in_python(weights: pathlib.Path, prompt: list[int], count: int, temperature: float, top_k: int, seed: int) -> list[int]:
    import safetensors.torch
    import torch
    from reference.models import make_model

    torch.set_num_threads(1)
    model = make_model(MODEL, BLOCK, 256)
    model.load_state_dict(safetensors.torch.load_file(weights))
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + count:
            logits = model(torch.tensor([tokens[-BLOCK:]]))[:, -1]
            if temperature == 0:
                tokens.append(int(logits.argmax()))
                continue
            logits = logits / temperature
            if top_k:
                logits[logits < torch.topk(logits, top_k)[0][:, [-1]]] = float("-inf")
            tokens.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
    return tokens[len(prompt):]


@pytest.mark.needs_torch_python
@pytest.mark.parametrize("temperature,top_k,seed", [(0, 0, 0), (1, 0, 3), (0.7, 5, 4)])
def test_tokens_match_python(ddptrain_bin, trained, temperature, top_k, seed):
    """Generates 60 tokens, which is more than the 32 positions of the model."""
    prompt = list(b"The run directory")
    expected = chosen_in_python(trained.parent / "weights.safetensors", prompt, 60, temperature, top_k, seed)
    found = generated(ddptrain_bin, trained, "--prompt", "The run directory", "--max-tokens", 60, "--temperature", temperature, "--top-k", top_k,
                      "--seed", seed)
    assert found["prompt_tokens"] == prompt
    assert found["tokens"] == expected
    assert found["text"] == bytes(prompt + expected).decode(errors="replace")


def test_every_model_source_and_output_form(ddptrain_bin, trained):
    options = ("--prompt", "A", "--max-tokens", 20, "--temperature", 0)
    expected = generated(ddptrain_bin, trained, *options)
    for model in (trained / "checkpoints/latest", trained / "checkpoints" / "step-000000020"):
        assert generated(ddptrain_bin, model, *options) == expected
    weights = trained.parent / "weights.safetensors"
    assert generated(ddptrain_bin, weights, "--config", trained.parent / "train.json", *options) == expected
    text = jobs.run([ddptrain_bin, "generate", *options, trained, "device=cpu"])
    assert text.returncode == 0 and text.stderr == "", text.stderr
    assert text.stdout.removesuffix("\n") == expected["text"].removesuffix("\n")
    numbers = jobs.run([ddptrain_bin, "generate", trained, "--prompt-tokens", "65", *options[2:]])
    assert [int(n) for n in numbers.stdout.split()] == [65, *expected["tokens"]]
    stop = expected["tokens"][7]
    stopped = generated(ddptrain_bin, trained, *options, "--stop-token", stop)
    assert stopped["tokens"] == expected["tokens"][:expected["tokens"].index(stop)]


def test_a_text_ends_with_its_document(ddptrain_bin, trained):
    """Generation must end at the end-of-document token. The model receives only the last document of the prompt."""
    options = ("--prompt-tokens", "65,66", "--max-tokens", 20, "--temperature", 0)
    whole = generated(ddptrain_bin, trained, *options)["tokens"]
    end = whole[9]
    assert generated(ddptrain_bin, trained, *options, f"data.end_of_document={end}")["tokens"] == whole[:whole.index(end)]
    other = next(byte for byte in range(256) if byte not in (65, 66, *whole))
    assert generated(ddptrain_bin, trained, "--prompt-tokens", f"70,71,{other},65,66", *options[2:], f"data.end_of_document={other}")["tokens"] == whole


def test_a_tiny_temperature_acts_as_zero(ddptrain_bin, trained):
    texts = [generated(ddptrain_bin, trained, "--temperature", t, "--max-tokens", 20)["text"] for t in ("0", "1e-40", "1e-320")]
    assert texts[0] == texts[1] == texts[2]


def test_the_same_seed_gives_the_same_text(ddptrain_bin, trained):
    texts = [generated(ddptrain_bin, trained, "--seed", seed)["text"] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("\n")


def test_a_damaged_checkpoint_is_skipped_and_a_named_one_refused(ddptrain_bin, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run, symlinks=True)
    newest = (run / "checkpoints/latest").resolve()
    content = bytearray((newest / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "model.safetensors").write_bytes(content)
    passed = jobs.run([ddptrain_bin, "generate", run, "--json", "--max-tokens", 1])
    assert passed.returncode == 0 and json.loads(passed.stdout)["tokens"], passed.stderr
    older = sorted((run / "checkpoints").glob("step-*"))[-2]
    assert passed.stderr.startswith(f"ddptrain: the newest checkpoint is damaged: {newest}/model.safetensors has checksum "), passed.stderr
    assert passed.stderr.endswith(f"; {older} is used instead\n") and passed.stderr.count("\n") == 1, passed.stderr
    done = jobs.run([ddptrain_bin, "generate", newest])
    assert done.returncode == 2 and "model.safetensors" in done.stderr and "checksum" in done.stderr, done.stderr


@pytest.mark.parametrize("arguments,words", [
    (["RUN", "--prompt", ""], "--prompt: expected a text to continue, found an empty text"),
    (["RUN", "--prompt-tokens", "1,x"], "such as 12,7,300, found '1,x'"),
    (["RUN", "--prompt-tokens", "1,256"], "--prompt-tokens has token 256; the model has 256 tokens, numbered from 0 (data.vocab_size)"),
    (["RUN", "--prompt-tokens", "1", "--prompt", "a"], "excludes"),
    (["RUN", "--prompt-tokens", ""], "such as 12,7,300, found ''"),
    (["RUN", "--temperature", "-1"], "--temperature"),
    (["RUN", "--temperature", "nan"], "--temperature: expected a number from 0 to 1000000, found nan"),
    (["RUN", "--max-tokens", "0"], "--max-tokens"),
    (["RUN", "--prmpt", "a"], "unknown flag --prmpt. Did you mean '--prompt'? See ddptrain generate --help"),
    (["RUN", "model.n_embd=64"], "does not match the model of the config: "),
    (["RUN", "data.train_tokens=train.bin"], "the model was trained on the tokens of train.bin, so a text cannot be converted to its tokens; use --prompt-tokens"),
    (["WEIGHTS"], "does not contain the config of its model; pass the train.json of its run with --config"),
    (["WEIGHTS", "--config", "none.json"], "none.json does not exist"),
    (["none"], "none: No such file or directory; expected a run directory, a checkpoint's folder"),
    ([], "from is required"),
])
def test_invalid_arguments_are_refused_in_one_line(ddptrain_bin, trained, arguments, words):
    named = {"RUN": trained, "WEIGHTS": trained.parent / "weights.safetensors"}
    done = jobs.run([ddptrain_bin, "generate", *(named.get(argument, argument) for argument in arguments)])
    assert done.returncode == 2 and words in done.stderr and done.stdout == "", done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_an_image_model_generates_no_text(ddprun_bin, ddptrain_bin, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), max_steps=1))
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train]).returncode == 0
    done = jobs.run([ddptrain_bin, "generate", tmp_path / "run"])
    assert done.returncode == 2 and "only a language model can generate text" in done.stderr, done.stderr


def test_help_and_a_config_named_generate(ddptrain_bin, tmp_path):
    done = jobs.run([ddptrain_bin, "generate", "--help"])
    assert done.returncode == 0 and "--temperature" in done.stdout
    (tmp_path / "generate").write_text("{}", encoding="utf-8")
    done = jobs.run([ddptrain_bin, "./generate"], cwd=tmp_path)
    assert done.returncode == 2 and "data.dir" in done.stderr, done.stderr
