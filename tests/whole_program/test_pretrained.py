"""Tests with folders of Hugging Face models: random checkpoints that transformers writes. Only config.json determines the
model. ddptrain must compute the same loss and choose the same tokens as transformers. It must refuse a model for which its
results would differ, and must export a folder that from_pretrained() loads without a warning."""

import json
import pathlib
import shutil

import jobs
import pytest

pytestmark = pytest.mark.needs_torch_python

BLOCK = 48
TEXT = (pathlib.Path(__file__).parents[2] / "LICENSE").read_bytes()
LLAMA = {"vocab_size": 256, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# For each family: the prefix of the class names in transformers, and the settings of the model.
FAMILIES = {
    "gpt2": ("GPT2", {"vocab_size": 256, "n_positions": BLOCK, "n_layer": 2, "n_head": 4, "n_embd": 48}, "GPT2LMHeadModel"),
    "llama2": ("Llama", {**LLAMA, "num_key_value_heads": 4}, None),
    "llama3.1": ("Llama", {**LLAMA, "rope_parameters": LLAMA3}, None),
    "llama3.2-tied": ("Llama", {**LLAMA, "rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 16}, None),
    "llama-biases": ("Llama", {**LLAMA, "attention_bias": True, "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}}, None),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": 64, "head_dim": 20}, None),
    "qwen2": ("Qwen2", {**LLAMA, "tie_word_embeddings": True}, None),
    "qwen3": ("Qwen3", {**LLAMA, "head_dim": 16}, None),
}


def made(name, **changes):
    """Returns a model of the family. Its weights are larger than usual. With small weights, the residual connections would
    hide an error in a layer."""
    import torch
    import transformers

    torch.manual_seed(1)
    torch.set_num_threads(1)
    prefix, settings, model_class = FAMILIES[name]
    model = getattr(transformers, model_class or f"{prefix}ForCausalLM")(getattr(transformers, f"{prefix}Config")(**{**settings, **changes}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_bytes(TEXT[:40 * BLOCK + 1])
    (folder / "val.txt").write_bytes(TEXT[-20 * BLOCK - 1:])
    return folder


def config(text: pathlib.Path, init: pathlib.Path, model=(), data=()) -> dict:
    tokens = {"type": "tokens", "dir": str(text), "train_tokens": "train.txt", "test_tokens": "val.txt", "block_size": BLOCK}
    return {"name": "pretrained", "device": "cpu", "model": {"type": "auto", "init": str(init), **dict(model)}, "data": {**tokens, **dict(data)},
            "batch_size": 8, "max_steps": 2, "optimizer": {"type": "sgd", "lr": 1e-30}, "log": {"every_steps": 1}}


def expected_of(model, block: int = BLOCK) -> tuple[float, list[int]]:
    """Returns the loss on val.txt, and the most likely tokens after a prompt."""
    import torch

    tokens = torch.tensor(list(TEXT[-20 * BLOCK - 1:]))
    count = (len(tokens) - 1) // block
    chosen = list(b"The agent")
    with torch.no_grad():
        logits = model(tokens[:count * block].view(count, block)).logits
        loss = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), tokens[1:count * block + 1]).item()
        while len(chosen) < block:
            chosen.append(int(model(torch.tensor([chosen])).logits[0, -1].argmax()))
    return loss, chosen


def evaluated(ddptrain, *arguments) -> float:
    done = jobs.run([ddptrain, "eval", *arguments, "--json"])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["loss"]


def generated(ddptrain, *arguments) -> list[int]:
    done = jobs.run([ddptrain, "generate", *arguments, "--prompt", "The agent", "--max-tokens", BLOCK - 9, "--temperature", 0, "--json", "device=cpu"])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["prompt_tokens"] + found["tokens"]


@pytest.mark.parametrize("name", FAMILIES)
def test_config_json_determines_the_model(ddptrain_bin, text, tmp_path, name):
    pytest.importorskip("transformers")
    model = made(name)
    model.save_pretrained(tmp_path / "hf")
    loss, tokens = expected_of(model)
    train = jobs.write_config(tmp_path / "train.json", config(text, tmp_path / "hf"))
    assert evaluated(ddptrain_bin, tmp_path / "hf", "--config", train) == pytest.approx(loss, rel=1e-6)
    assert generated(ddptrain_bin, tmp_path / "hf", "--config", train) == tokens
    # The folder has no train.json, so the data keys are passed on the command line.
    assert evaluated(ddptrain_bin, tmp_path / "hf", f"data.dir={text}", "data.train_tokens=train.txt", "data.test_tokens=val.txt", f"data.block_size={BLOCK}", "device=cpu") == pytest.approx(loss, rel=1e-6)

    done = jobs.run([ddptrain_bin, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 0, done.stderr
    assert jobs.metrics(tmp_path / "run", "eval")[-1]["loss"] == pytest.approx(loss, rel=1e-6)
    written = json.loads((tmp_path / "run/config.json").read_text())
    assert written["model"]["type"] == ("gpt" if name == "gpt2" else "llama") and written["data"]["vocab_size"] == 256
    # A config that contains the model type must have the same values as config.json.
    named = jobs.write_config(tmp_path / "named.json", config(text, tmp_path / "hf/model.safetensors", model=written["model"] | {"init": str(tmp_path / "hf/model.safetensors")},
                                                              data={"vocab_size": 256}))
    assert evaluated(ddptrain_bin, tmp_path / "hf/model.safetensors", "--config", named) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_exported_folder_loads_without_a_warning(ddptrain_bin, text, tmp_path, name, caplog):
    transformers = pytest.importorskip("transformers")
    import torch

    model = made(name)
    model.save_pretrained(tmp_path / "hf")
    shutil.copy(tmp_path / "hf/generation_config.json", tmp_path / "kept.json")
    (tmp_path / "hf/special_tokens_map.json").write_text("{}")
    train = jobs.write_config(tmp_path / "train.json", config(text, tmp_path / "hf"))
    assert jobs.run([ddptrain_bin, "--run-dir", tmp_path / "run", train]).returncode == 0
    for kept in (True, False):
        if not kept:  # in this case, the export creates config.json from the config keys of the run
            shutil.rmtree(tmp_path / "hf")
        done = jobs.run([ddptrain_bin, "--export-weights", tmp_path / "run", tmp_path / f"out{kept}"])
        assert done.returncode == 0, done.stderr
        assert sorted(file.name for file in (tmp_path / f"out{kept}").iterdir()) == sorted(
            ["config.json", "model.safetensors"] + (["generation_config.json", "special_tokens_map.json"] if kept else []))
        transformers.logging.enable_propagation()
        with caplog.at_level("WARNING"):
            loaded, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / f"out{kept}", output_loading_info=True)
        assert not caplog.records and not any(report.values()), (caplog.text, report)
        assert type(loaded) is type(model) or not kept
        for (key, value), (_, other) in zip(sorted(model.state_dict().items()), sorted(loaded.state_dict().items()), strict=True):
            assert torch.equal(value, other), key
        tokens = torch.tensor([list(b"The agent starts")])
        with torch.no_grad():
            torch.testing.assert_close(model(tokens).logits, loaded.eval()(tokens).logits, rtol=1e-6, atol=1e-6)
    assert (tmp_path / "outTrue/generation_config.json").read_bytes() == (tmp_path / "kept.json").read_bytes()


def test_shards_prefixes_and_small_types_are_read(ddptrain_bin, text, tmp_path):
    pytest.importorskip("transformers")
    import torch
    from safetensors.torch import load_file, save_file

    for name in ("gpt2", "qwen2"):
        model = made(name)
        loss, _ = expected_of(model)
        hf = tmp_path / name
        model.save_pretrained(hf, max_shard_size="20KB")
        assert len(list(hf.glob("model-*.safetensors"))) > 1
        train = jobs.write_config(tmp_path / "train.json", config(text, hf))
        for source in (hf, hf / "model.safetensors.index.json"):
            assert evaluated(ddptrain_bin, source, "--config", train) == pytest.approx(loss, rel=1e-6)
        whole = {}
        for file in hf.glob("model-*.safetensors"):
            whole |= load_file(file)
        prefix = "transformer." if name == "gpt2" else "model."
        bare = {key.removeprefix(prefix): value for key, value in whole.items()}
        if name == "gpt2":  # old files contain the masks of attention
            bare |= {f"h.{i}.attn.bias": torch.ones(1, 1, BLOCK, BLOCK) for i in range(2)}
        for kind, tensors in (("bare", bare), ("wrapped", {f"module.{key}": value for key, value in whole.items()}),
                              ("bf16", {key: value.bfloat16() for key, value in whole.items()}), ("fp16", {key: value.half() for key, value in whole.items()})):
            (tmp_path / f"{name}-{kind}").mkdir()
            shutil.copy(hf / "config.json", tmp_path / f"{name}-{kind}")
            save_file(tensors, tmp_path / f"{name}-{kind}/model.safetensors", {"format": "pt"})
            found = evaluated(ddptrain_bin, tmp_path / f"{name}-{kind}", "--config", train)
            assert found == pytest.approx(loss, rel=0.1 if kind.endswith("16") else 1e-6)
            if kind.endswith("16"):
                rounded = made(name)
                rounded.load_state_dict({key: value.float() for key, value in tensors.items()}, strict=False)
                assert found == pytest.approx(expected_of(rounded)[0], rel=1e-6)
        next(hf.glob("model-00002*")).unlink()
        gone = jobs.run([ddptrain_bin, "eval", hf, "--config", train])
        assert gone.returncode == 2 and "model-00002-of-" in gone.stderr and "No such file" in gone.stderr, gone.stderr


def test_longer_position_tables_are_cropped_on_request(ddptrain_bin, text, tmp_path):
    pytest.importorskip("transformers")
    model = made("gpt2", n_positions=2 * BLOCK)
    model.save_pretrained(tmp_path / "hf")
    train = jobs.write_config(tmp_path / "train.json", config(text, tmp_path / "hf"))
    refused = jobs.run([ddptrain_bin, "eval", tmp_path / "hf", "--config", train])
    assert refused.returncode == 2 and f"data.block_size is {BLOCK} in this config, but n_positions is {2 * BLOCK} in {tmp_path}/hf/config.json" in refused.stderr
    assert "set model.crop_positions to true" in refused.stderr, refused.stderr
    assert evaluated(ddptrain_bin, tmp_path / "hf", "--config", train, "model.crop_positions=true") == pytest.approx(expected_of(model)[0], rel=1e-6)
    (tmp_path / "hf/model.safetensors").rename(tmp_path / "alone.safetensors")
    named = jobs.write_config(tmp_path / "named.json", config(text, "", model={"type": "gpt", "n_layer": 2, "n_head": 4, "n_embd": 48, "init": ""}, data={"vocab_size": 256}))
    refused = jobs.run([ddptrain_bin, "eval", tmp_path / "alone.safetensors", "--config", named])
    assert refused.returncode == 2 and f"alone.safetensors has {2 * BLOCK} positions, but data.block_size is {BLOCK}" in refused.stderr, refused.stderr


def test_a_folder_with_a_tokenizer_needs_no_config(ddptrain_bin, text, tmp_path):
    """The tokenizer of the folder must encode the training text, and `generate` must print text."""
    pytest.importorskip("transformers")
    golden = json.loads((pathlib.Path(__file__).parents[1] / "trainer/tokens/golden.json").read_text(encoding="utf-8"))
    made("qwen3", vocab_size=430).save_pretrained(tmp_path / "hf")
    tokenizer = golden["tokenizer"] | golden["other_words"]["qwen2"]
    (tmp_path / "hf/tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    done = jobs.run([ddptrain_bin, "generate", tmp_path / "hf", "--prompt", "The agent", "--max-tokens", 4, "device=cpu"])
    assert done.returncode == 0 and done.stdout.startswith("The agent"), done.stderr
    train = config(text, tmp_path / "hf", data={"block_size": 16})
    done = jobs.run([ddptrain_bin, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", train)])
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "run/config.json").read_text())
    assert written["data"]["tokenizer"] == str(tmp_path / "hf") and written["data"]["vocab_size"] == 430
    assert jobs.run([ddptrain_bin, "--export-weights", tmp_path / "run", tmp_path / "out"]).returncode == 0
    assert (tmp_path / "out/tokenizer.json").read_bytes() == (tmp_path / "hf/tokenizer.json").read_bytes()


# Each row has one wrong key in train.json or one unsupported setting in config.json. A row consists of the model, changes of
# the model and data in train.json, changes of config.json, and words of the expected message.
WRONG = [
    ("gpt2", {"n_head": 12}, {}, {}, ["model.n_head is 12", "n_head is 4"]),
    ("gpt2", {"n_layer": 3}, {}, {}, ["model.n_layer is 3", "n_layer is 2"]),
    ("gpt2", {"n_embd": 64}, {}, {}, ["model.n_embd is 64", "n_embd is 48"]),
    ("gpt2", {}, {"vocab_size": 300}, {}, ["data.vocab_size is 300", "vocab_size is 256"]),
    ("gpt2", {}, {"block_size": 2 * BLOCK}, {}, [f"data.block_size is {2 * BLOCK}", f"n_positions is {BLOCK}"]),
    ("gpt2", {}, {}, {"activation_function": "relu"}, ['activation_function is "relu"', '"gelu_new"']),
    ("gpt2", {}, {}, {"layer_norm_epsilon": 1e-6}, ["layer_norm_epsilon is 1e-06", "1e-05"]),
    ("gpt2", {}, {}, {"n_inner": 100}, ["n_inner is 100", "only 192"]),
    ("gpt2", {}, {}, {"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx is true", "only false"]),
    ("gpt2", {}, {}, {"add_cross_attention": True}, ["add_cross_attention is true"]),
    ("gpt2", {}, {}, {"tie_word_embeddings": False}, ["tie_word_embeddings is false"]),
    ("llama2", {"n_kv_head": 2}, {}, {}, ["model.n_kv_head is 2", "num_key_value_heads is 4"]),
    ("llama2", {"n_inner": 128}, {}, {}, ["model.n_inner is 128", "intermediate_size is 96"]),
    ("llama2", {"rms_norm_eps": 0.1}, {}, {}, ["model.rms_norm_eps is 0.1", "rms_norm_eps is 1e-05"]),
    ("llama2", {"rope_theta": 500}, {}, {}, ["model.rope_theta is 500", "rope_theta is 10000"]),
    ("llama2", {"head_dim": 24}, {}, {}, ["model.head_dim is 24", "head_dim is 12"]),
    ("llama2", {"tie_word_embeddings": True}, {}, {}, ["model.tie_word_embeddings is true", "tie_word_embeddings is false"]),
    ("llama2", {"attention_bias": "all"}, {}, {}, ['model.attention_bias is "all"', "attention_bias is false"]),
    ("llama2", {}, {}, {"hidden_act": "gelu"}, ['hidden_act is "gelu"', '"silu"']),
    ("llama2", {}, {}, {"mlp_bias": True}, ["mlp_bias is true"]),
    ("llama2", {}, {}, {"attention_dropout": 0.1}, ["attention_dropout is 0.1"]),
    ("llama2", {}, {}, {"embedding_multiplier": 12.0}, ["embedding_multiplier is 12"]),
    ("llama2", {}, {}, {"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping is 50"]),
    ("llama2", {}, {}, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ['rope_type is "yarn"']),
    ("llama2", {}, {}, {"rope_scaling": {"type": "dynamic", "factor": 4.0}}, ['rope_type is "dynamic"']),
    ("llama2", {}, {}, {"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5"]),
    ("llama2", {}, {}, {"model_type": "gemma"}, ['model_type "gemma"']),
    ("llama2", {}, {}, {"model_type": "granite"}, ['model_type "granite"']),
    ("llama3.1", {"rope_scaling": "none"}, {}, {}, ['model.rope_scaling is "none"', 'rope_type is "llama3"']),
    ("llama3.1", {"rope_factor": 8}, {}, {}, ["model.rope_factor is 8", "factor is 4"]),
    ("mistral", {}, {}, {"sliding_window": 16}, ["sliding_window is 16", f"({BLOCK})"]),
    ("qwen2", {"attention_bias": "none"}, {}, {}, ['model.attention_bias is "none"', 'model_type is "qwen2"']),
    ("qwen2", {}, {}, {"use_sliding_window": True, "sliding_window": 16, "layer_types": None, "max_window_layers": 1}, ["sliding_window is 16"]),
    ("qwen3", {"qk_norm": False}, {}, {}, ["model.qk_norm is false", 'model_type is "qwen3"']),
    ("qwen3", {}, {}, {"num_experts": 8}, ["num_experts is 8"]),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> pathlib.Path:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved")
    for name in ("gpt2", "llama2", "llama3.1", "mistral", "qwen2", "qwen3"):
        made(name).save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("name,model,data,theirs,words", WRONG, ids=[f"{row[0]}-{next(iter(row[1] | row[2] | row[3]))}" for row in WRONG])
def test_a_wrong_key_is_refused_with_both_values(ddprun_bin, text, saved, tmp_path, name, model, data, theirs, words):
    """ddprun refuses the config before it starts the job. If there is no change, it accepts the config
    (test_right_keys_are_accepted)."""
    shutil.copytree(saved / name, tmp_path / "hf")
    file = tmp_path / "hf/config.json"
    right = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(right | theirs), encoding="utf-8")
    train = jobs.write_config(tmp_path / "train.json", config(text, tmp_path / "hf", model, data))
    done = jobs.run([ddprun_bin, "validate", train])
    assert done.returncode == 2, done.stdout + done.stderr
    for each in [*words, str(file)]:
        assert each in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["gpt2", "llama2", "llama3.1", "mistral", "qwen2", "qwen3"])
def test_right_keys_are_accepted(ddprun_bin, text, saved, tmp_path, name):
    done = jobs.run([ddprun_bin, "validate", jobs.write_config(tmp_path / "train.json", config(text, saved / name))])
    assert done.returncode == 0, done.stderr
    assert f"{saved}/{name}/config.json describes a {name.rstrip('.0123456789') if name.startswith('llama') else name} model" in done.stdout + done.stderr


@pytest.mark.parametrize("change,words", [
    (lambda folder: (folder / "config.json").unlink(), "config.json does not exist"),
    (lambda folder: (folder / "config.json").write_text("{"), "config.json: is not valid JSON"),
    (lambda folder: (folder / "config.json").write_text('{"model": {"type": "gpt"}}'), "is not a config of a Hugging Face model, which has the key model_type"),
])
def test_a_folder_without_a_usable_config_is_refused(ddprun_bin, text, saved, tmp_path, change, words):
    shutil.copytree(saved / "gpt2", tmp_path / "hf")
    change(tmp_path / "hf")
    done = jobs.run([ddprun_bin, "validate", jobs.write_config(tmp_path / "train.json", config(text, tmp_path / "hf"))])
    assert done.returncode == 2 and words in done.stderr and "(/model/init)" in done.stderr, done.stderr


def test_auto_needs_initial_weights(ddprun_bin, text, tmp_path):
    train = config(text, tmp_path)
    del train["model"]["init"]
    done = jobs.run([ddprun_bin, "validate", jobs.write_config(tmp_path / "train.json", train)])
    assert done.returncode == 2 and 'model.type "auto" requires model.init' in done.stderr, done.stderr
