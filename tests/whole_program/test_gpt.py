"""Tests of GPT and Llama models on text and on token files. The tests show that a lost worker or an interruption does not
change any bit of the results, and that token files of other tools give the same results as text. Invalid settings are refused.
test_python_equivalence.py compares the losses with the losses of the same model in Python."""

import json
import pathlib
import struct
import sys

import jobs
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

BLOCK = 32
TEXT = (pathlib.Path(__file__).parents[2] / "LICENSE").read_bytes()  # ASCII text that never changes
TRAIN, TEST = TEXT[:161 * BLOCK], TEXT[-40 * BLOCK:]
MODEL = {"type": "gpt", "n_layer": 2, "n_head": 2, "n_embd": 32, "dropout": 0.1}
LLAMA = {"type": "llama", "n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 32, "n_inner": 64}

# A small Python process that starts a program and prints the peak memory of the program. The peak of a child process starts at
# the peak of its parent, so pytest itself must not start the program.
PEAK_OF = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    for name, text in (("train", TRAIN), ("val", TEST)):
        tokens = struct.pack(f"<{len(text)}H", *text)
        header = struct.pack("<256i", 20240520, 1, len(text), *[0] * 253)
        for file, content in ((f"{name}.txt", text), (f"{name}.bin", tokens), (f"{name}-llm.bin", header + tokens)):
            (folder / file).write_bytes(content)
    return folder


def config(data: pathlib.Path, **changes) -> dict:
    """Returns a config for a run with 160 training samples and 10 steps per epoch."""
    tokens = {"type": "tokens", "train_tokens": "train.txt", "test_tokens": "val.txt", "block_size": BLOCK, "vocab_size": 256}
    return jobs.config(data, **{"model": MODEL, "batch_size": 16, "eval_every_steps": 7, "clip_grad_norm": 1.0, "data": tokens, **changes})


def state_of(run_dir: pathlib.Path) -> tuple:
    return jobs.weights_digest(run_dir), [(line["event"], line["step"], line["loss"]) for line in jobs.metrics(run_dir) if line["event"] in ("step", "eval")]


def test_a_lost_worker_and_an_interruption_change_no_bit(ddprun_bin, ddptrain_bin, data, tmp_path):
    groups = [{"parameters": "*.bias", "weight_decay": 0}, {"parameters": "*.ln_*", "weight_decay": 0}]
    train = jobs.write_config(tmp_path / "train.json", config(data, optimizer={"type": "adamw", "lr": 0.003, "weight_decay": 0.1, "groups": groups}))
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train])
    assert calm.returncode == 0, calm.stderr
    losses = [loss for _, loss in jobs.losses(tmp_path / "calm")]
    assert len(losses) == 20 and losses[-1] < losses[0] - 1, losses
    assert [line["step"] for line in jobs.metrics(tmp_path / "calm", "eval")] == [7, 10, 14, 20]
    for fault in ("kill rank=0 step=9", "kill rank=1 step=12 phase=backward", "kill rank=0 step=14 phase=evaluating", "kill rank=1 step=5 phase=optimizer"):
        run = tmp_path / fault.replace(" ", "-")
        killed = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run, train], DDPTRAIN_FAULT=fault)
        assert killed.returncode == 0, killed.stderr
        assert [r["decision"] for r in jobs.report(run)["rounds"]] == ["regroup", "end"]
        assert state_of(run) == state_of(tmp_path / "calm"), fault
        jobs.assert_each_sample_once(run, 2, samples=160)
    resumed = tmp_path / "resumed"
    assert jobs.run([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 1, "--recovery", "checkpoint", "--run-dir", resumed, train,
                     "checkpoint.background=false"], DDPTRAIN_FAULT="kill rank=1 step=16").returncode == 0
    assert jobs.metrics(resumed, "restart")[0]["step"] == 14
    assert state_of(resumed) == state_of(tmp_path / "calm")
    weights = load_file(tmp_path / "calm/checkpoints/latest/model.safetensors")
    assert weights["transformer.h.1.attn.c_attn.weight"].shape == (32, 96) and "lm_head.weight" not in weights
    assert weights["transformer.wpe.weight"].shape == (BLOCK, 32) and len(weights) == 2 + 2 * 12 + 2


def test_a_llama_survives_a_lost_worker_and_other_world_sizes(ddprun_bin, ddptrain_bin, data, tmp_path):
    """The job is started with 2 workers, then with 1 worker, then with 3 workers. Each epoch must use each sample exactly
    once."""
    train = jobs.write_config(tmp_path / "train.json", config(data, model=LLAMA, optimizer={"type": "lion", "lr": 0.001, "weight_decay": 0.1}))
    for run, fault in (("calm", ""), ("killed", "kill rank=1 step=12 phase=backward")):
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / run, train], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
    assert [r["decision"] for r in jobs.report(tmp_path / "killed")["rounds"]] == ["regroup", "end"]
    assert state_of(tmp_path / "killed") == state_of(tmp_path / "calm")
    for workers, steps in ((2, 6), (1, 13), (3, 20)):
        done = jobs.run([ddprun_bin, "--nproc-per-node", workers, "--run-dir", tmp_path / "changing", train, f"max_steps={steps}"])
        assert done.returncode == 0, done.stderr
    jobs.assert_each_sample_once(tmp_path / "changing", 2, samples=160)
    assert jobs.metrics(tmp_path / "changing", "eval")[-1]["loss"] == pytest.approx(jobs.metrics(tmp_path / "calm", "eval")[-1]["loss"], rel=1e-2)


def test_text_nanogpt_and_llm_c_files_train_equally(ddprun_bin, ddptrain_bin, data, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config(data, max_steps=3))
    for kind, suffix in (("text", ".txt"), ("nanogpt", ".bin"), ("llm.c", "-llm.bin")):
        done = jobs.run([ddprun_bin, "--run-dir", tmp_path / kind, train, f"data.train_tokens=train{suffix}", f"data.test_tokens=val{suffix}"])
        assert done.returncode == 0, done.stderr
        assert state_of(tmp_path / kind) == state_of(tmp_path / "text")


@pytest.mark.parametrize("end", [None, ord("\n")])
def test_batches_are_weighted_by_tokens(ddprun_bin, ddptrain_bin, data, tmp_path, end):
    """A step has 13 samples. The samples are split over 2 workers, or over 3 workers and into micro-batches of 2. The losses
    must equal the losses of one worker, up to rounding. If each line is a document, the samples have different numbers of
    predicted tokens, so the samples have different weights."""
    train = jobs.write_config(tmp_path / "train.json", config(data, batch_size=13, model={**MODEL, "dropout": 0}, max_steps=14))
    written = json.loads(train.read_text(encoding="utf-8"))
    jobs.write_config(train, {**written, "data": {**written["data"], "end_of_document": end}})
    runs = {}
    for workers, micro in ((1, 0), (2, 0), (3, 2)):
        done = jobs.run([ddprun_bin, "--nproc-per-node", workers, "--run-dir", tmp_path / str(workers), train, f"micro_batch_size={micro}"])
        assert done.returncode == 0, done.stderr
        runs[workers] = [line["loss"] for line in jobs.metrics(tmp_path / str(workers)) if line["event"] in ("step", "eval")]
    for workers in (2, 3):
        assert runs[workers] == pytest.approx(runs[1], rel=2e-5)


def test_activation_checkpointing_changes_no_bit(ddprun_bin, ddptrain_bin, data, tmp_path):
    """The same job runs with and without activation checkpointing. The model has dropout, and the job accumulates gradients.
    In the last run a worker is killed during a backward pass and replaced."""
    train = jobs.write_config(tmp_path / "train.json", config(data, micro_batch_size=4))
    for run, more, fault in (("plain", (), ""), ("again", ("model.activation_checkpointing=true",), ""),
                             ("killed", ("model.activation_checkpointing=true",), "kill rank=1 step=12 phase=backward")):
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / run, train, *more], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
        assert state_of(tmp_path / run) == state_of(tmp_path / "plain")
    assert [r["decision"] for r in jobs.report(tmp_path / "killed")["rounds"]] == ["regroup", "end"]


def test_activation_checkpointing_takes_less_memory(ddptrain_bin, data, tmp_path):
    """Compares the peak memory of a step with and without activation checkpointing. The step has 4,096 tokens, and the model
    has eight blocks."""
    train = jobs.write_config(tmp_path / "train.json", config(data, model={**MODEL, "n_layer": 8, "n_embd": 64}, batch_size=128, max_steps=1, eval_every_steps=0,
                                                              eval_batch_size=1))
    peaks = []
    for again in ("false", "true"):
        done = jobs.run([sys.executable, "-c", PEAK_OF, ddptrain_bin, "--run-dir", tmp_path / again, train, f"model.activation_checkpointing={again}"])
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.splitlines()[-1]))
    assert peaks[1] < peaks[0] - 100_000, f"{peaks} KiB"
    assert state_of(tmp_path / "true") == state_of(tmp_path / "false")


def test_initial_weights_are_loaded_and_exported(ddprun_bin, ddptrain_bin, data, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config(data, max_steps=2))
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train]).returncode == 0
    assert jobs.run([ddptrain_bin, "--export-weights", tmp_path / "run", tmp_path / "weights.safetensors"]).returncode == 0
    # The tied weight is stored once. Its second name is in the metadata, in the format of save_model() in safetensors.
    with safe_open(tmp_path / "weights.safetensors", "numpy") as weights:
        assert "lm_head.weight" not in weights.keys() and weights.metadata()["lm_head.weight"] == "transformer.wte.weight"
    again = jobs.run([ddprun_bin, "--run-dir", tmp_path / "again", train, f"model.init={tmp_path}/weights.safetensors", "optimizer.lr=1e-30", "optimizer.weight_decay=0"])
    assert again.returncode == 0, again.stderr
    assert jobs.metrics(tmp_path / "again", "eval")[-1]["loss"] == jobs.metrics(tmp_path / "run", "eval")[-1]["loss"]


@pytest.mark.parametrize("changes,words", [
    (("data.vocab_size=100",), "expected a number below data.vocab_size, 100"),
    (("data.end_of_document=256",), "expected a token below vocab_size, which is 256, found 256 (/data/end_of_document)"),
    (("data.block_size=100000",), "one sample of data.block_size 100000 needs 100001"),
    (("data.train_tokens=none.bin",), "none.bin: cannot be mapped: No such file or directory"),
    (("model.n_head=3",), "expected a multiple of n_head, which is 3, found 32 (/model/n_embd)"),
    (("model.n_layer=0",), "(/model/n_layer)"),
    (("model.type=llama", "model.dropout=0"), "key 'dropout' is for model type "),
    (("model.type=mlp",), 'data.type "tokens" is for model type "gpt" or "llama" only, found "mlp" (/data/type)'),
    (("data.augment.flip=true",), 'only images can be augmented, found data.type "tokens"'),
    (("checkpoint.keep_best=1",), "its metrics are loss"),
])
def test_invalid_models_are_refused(ddprun_bin, ddptrain_bin, data, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config(data)), *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr
