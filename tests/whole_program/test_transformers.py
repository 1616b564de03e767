"""Compares ddptrain with GPT2LMHeadModel and LlamaForCausalLM of Hugging Face, with random weights. ddptrain must compute the
same loss and choose the same tokens."""

import json

import jobs
import pytest
from test_generate import generated
from test_gpt import BLOCK, config, data  # noqa: F401  (data is a fixture)

pytestmark = [pytest.mark.long, pytest.mark.needs_torch_python]

SIZES = {"n_layer": 2, "n_head": 4, "n_embd": 64}


def gpt2(transformers):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=256, n_positions=BLOCK, **SIZES)), {"type": "gpt", **SIZES}


def llama(transformers, tied):
    settings = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=tied)
    return transformers.LlamaForCausalLM(settings), {"type": "llama", **SIZES, "n_kv_head": 2, "n_inner": 160, "rms_norm_eps": 1e-5, "tie_word_embeddings": tied}


@pytest.mark.parametrize("make", [gpt2, lambda transformers: llama(transformers, False), lambda transformers: llama(transformers, True)],
                         ids=["gpt2", "llama", "llama-tied"])
def test_losses_and_tokens_match_transformers(ddptrain_bin, data, tmp_path, make):  # noqa: F811
    transformers = pytest.importorskip("transformers")
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    theirs, model = make(transformers)
    # The initial weights are larger than usual. With small weights, the residual connections would hide an error in a layer.
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.2)
    theirs.eval().save_pretrained(tmp_path / "saved")
    train = jobs.write_config(tmp_path / "train.json", config(data, model=model))
    weights = [tmp_path / "saved/model.safetensors", "--config", train]
    text = torch.frombuffer(bytearray((data / "val.txt").read_bytes()), dtype=torch.uint8).long()
    samples = (len(text) - 1) // BLOCK
    with torch.no_grad():
        logits = theirs(text[:samples * BLOCK].view(samples, BLOCK)).logits
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[1:samples * BLOCK + 1]).item()
        tokens = list(b"The agent")
        while len(tokens) < BLOCK:
            tokens.append(int(theirs(torch.tensor([tokens])).logits[0, -1].argmax()))
    done = jobs.run([ddptrain_bin, "eval", *weights, "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"loss": pytest.approx(expected, rel=1e-5), "samples": samples}
    found = generated(ddptrain_bin, *weights, "--prompt", "The agent", "--max-tokens", BLOCK - 9, "--temperature", 0)
    assert found["prompt_tokens"] + found["tokens"] == tokens
