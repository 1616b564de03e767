"""Tests of low-rank updates (model.lora). A lost worker or an interruption must not change any bit of the results, and the
base weights must stay unchanged. A model that was exported in either format must give the same results as the trained model.
test_python_equivalence.py compares the losses with the formula of the package peft."""

import json
import pathlib
import shutil

import jobs
import pytest
from safetensors.numpy import load_file
from test_gpt import BLOCK, MODEL, config, data, state_of  # noqa: F401  (data is a fixture)

BASE = {**MODEL, "dropout": 0}
LORA = {"rank": 4, "alpha": 8, "modules": ["*.c_attn", "*.mlp.c_proj"]}


@pytest.fixture(scope="module")
def base(ddprun_bin, ddptrain_bin, data, tmp_path_factory) -> pathlib.Path:  # noqa: F811
    """Returns a file with weights after one epoch at a low learning rate. At a learning rate of 0.01, the loss has spikes that
    differ between processors, so a test of the loss would fail on some processors."""
    folder = tmp_path_factory.mktemp("base")
    train = jobs.write_config(folder / "train.json", config(data, model=BASE, epochs=1, optimizer={"type": "adamw", "lr": 0.003}))
    assert jobs.run([ddprun_bin, "--run-dir", folder / "run", train]).returncode == 0
    assert jobs.run([ddptrain_bin, "--export-weights", folder / "run", folder / "base.safetensors"]).returncode == 0
    return folder / "base.safetensors"


@pytest.fixture(scope="module")
def tuned(ddprun_bin, data, base, tmp_path_factory) -> pathlib.Path:  # noqa: F811
    """Trains low-rank updates of the base weights with two workers, without faults. Returns the run directory."""
    folder = tmp_path_factory.mktemp("tuned")
    train = jobs.write_config(folder / "train.json", config(data, model={**BASE, "init": str(base), "lora": LORA}, optimizer={"type": "adamw", "lr": 0.01, "ema": {"decay": 0.5}}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", folder / "run", train])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"model.init: 28 tensors come from {base}; these tensors are missing in it and are initialized as in a new model: "
                             "transformer.h.0.attn.c_attn.lora_A.weight, transformer.h.0.attn.c_attn.lora_B.weight") == 1, done.stderr
    return folder / "run"


def test_a_lost_worker_and_an_interruption_change_no_bit(ddprun_bin, ddptrain_bin, tuned, tmp_path):
    train = tuned.parent / "train.json"
    for fault in ("kill rank=0 step=9 phase=backward", "kill rank=1 step=12 phase=optimizer"):
        run = tmp_path / fault.replace(" ", "-")
        killed = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run, train], DDPTRAIN_FAULT=fault)
        assert killed.returncode == 0, killed.stderr
        assert [r["decision"] for r in jobs.report(run)["rounds"]] == ["regroup", "end"]
        assert state_of(run) == state_of(tuned), fault
    resumed = tmp_path / "resumed"
    assert jobs.run([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 1, "--recovery", "checkpoint", "--run-dir", resumed, train,
                     "checkpoint.background=false"], DDPTRAIN_FAULT="kill rank=1 step=16").returncode == 0
    assert jobs.metrics(resumed, "restart")[0]["step"] == 14
    assert state_of(resumed) == state_of(tuned)


def test_only_updates_are_trained(tuned, base):
    before, after = load_file(base), load_file(tuned / "checkpoints/latest/model.safetensors")
    updates = {name for name in after if ".lora_" in name}
    assert updates == {f"transformer.h.{i}.{layer}.lora_{side}.weight" for i in (0, 1) for layer in ("attn.c_attn", "mlp.c_proj") for side in "AB"}
    assert all((after[name] == before[name]).all() for name in before) and after.keys() == before.keys() | updates
    assert after["transformer.h.0.attn.c_attn.lora_A.weight"].shape == (4, 32) and after["transformer.h.0.attn.c_attn.lora_B.weight"].shape == (96, 4)
    assert all(after[name].any() for name in updates)
    assert {name.rpartition(".")[0] for name in load_file(tuned / "checkpoints/latest/optimizer.safetensors")} == updates
    started, ended = (jobs.metrics(run, "eval")[-1]["loss"] for run in (base.parent / "run", tuned))
    assert ended < started - 0.0005  # the loss fell by the same 0.0014 with SSE4.2, AVX2 and AVX-512


def test_both_exports_compute_the_trained_model(ddprun_bin, ddptrain_bin, tuned, base, tmp_path):
    """The test computes the merged weights from the adapter with the LoRA formula, and compares them with the exported merged
    weights. Both exports contain the averaged weights (ema)."""
    merged, folder = tmp_path / "merged.safetensors", tmp_path / "adapter"
    for option, to in (("--export-weights", merged), ("--export-adapter", folder)):
        done = jobs.run([ddptrain_bin, option, tuned, to])
        assert done.returncode == 0, done.stderr
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert (settings["peft_type"], settings["r"], settings["lora_alpha"], settings["fan_in_fan_out"], settings["task_type"]) == ("LORA", 4, 8, True, "CAUSAL_LM")
    assert settings["target_modules"] == [f"transformer.h.{i}.{layer}" for i in (0, 1) for layer in ("attn.c_attn", "mlp.c_proj")]
    adapter, weights, before = load_file(folder / "adapter_model.safetensors"), load_file(merged), load_file(base)
    assert len(adapter) == 8 and weights.keys() == before.keys()
    for name in weights:
        a, b = (adapter.get(f"base_model.model.{name.removesuffix('.weight')}.lora_{side}.weight") for side in "AB")
        expected = before[name] if a is None else before[name] + (b @ a).T * 2
        assert abs(weights[name] - expected).max() <= 1e-6, name
    evaluated = jobs.run([ddptrain_bin, "eval", "--json", tuned])
    alone = jobs.run([ddptrain_bin, "eval", "--json", merged, "--config", tuned.parent / "train.json", "model.lora.rank=0"])
    assert evaluated.returncode == alone.returncode == 0, evaluated.stderr + alone.stderr
    assert json.loads(alone.stdout)["loss"] == pytest.approx(json.loads(evaluated.stdout)["loss"], rel=1e-6)
    assert json.loads(evaluated.stdout)["loss"] == pytest.approx(jobs.metrics(tuned, "eval")[-1]["loss"], rel=1e-6)


def test_a_moved_checkpoint_is_exported_with_a_named_config(ddptrain_bin, tuned, tmp_path):
    """Exports two kinds of checkpoints outside their usual folder. For a copy on a node's own disk, the command must contain a
    config. A checkpoint with the suffix .superseded needs no config; it is a checkpoint from which a later invocation did not
    resume."""
    copies = tmp_path / "run-0123456789abcdef" / "copy-0"
    copies.mkdir(parents=True)
    newest = (tuned / "checkpoints/latest").resolve()
    shutil.copytree(newest, copies / newest.name)
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copytree(newest, run / "checkpoints" / f"{newest.name}.superseded")
    (run / "config.json").write_bytes((tuned / "config.json").read_bytes())
    for option in ("--export-weights", "--export-adapter"):
        def exported(source: pathlib.Path, *config):
            done = jobs.run([ddptrain_bin, option, source, tmp_path / f"out{option}", *config])
            to = tmp_path / f"out{option}"
            # If the run has no config, --export-weights writes a single file instead of a folder.
            files = [to, to / "adapter_model.safetensors", to / "model.safetensors"]
            return done, load_file(next(file for file in files if file.is_file())) if done.returncode == 0 else {}
        done, expected = exported(tuned)
        assert done.returncode == 0, done.stderr
        for source in (copies, copies / newest.name):
            done, _ = exported(source)
            assert done.returncode == 2 and "append the train.json of the run to the command" in done.stderr, done.stderr
            done, found = exported(source, tuned.parent / "train.json")
            assert done.returncode == 0, done.stderr
            assert found.keys() == expected.keys() and all((found[name] == expected[name]).all() for name in found)
        done, found = exported(run / "checkpoints" / f"{newest.name}.superseded")
        assert done.returncode == 0 and all((found[name] == expected[name]).all() for name in expected), done.stderr
    measured = [jobs.run([ddptrain_bin, "eval", *place]) for place in ([tuned], [copies, "--config", tuned.parent / "train.json"])]
    assert measured[0].returncode == 0 and measured[0].stdout == measured[1].stdout, measured[1].stderr
    # The output path is a symbolic link of the user. The export must write to the link's target. If the export used a rename,
    # it would replace the link.
    link = tmp_path / "link.safetensors"
    (tmp_path / "behind.safetensors").touch()
    link.symlink_to(tmp_path / "behind.safetensors")
    assert jobs.run([ddptrain_bin, "--export-weights", tuned, link]).returncode == 0
    assert link.is_symlink() and (tmp_path / "behind.safetensors").stat().st_size > 0
    within = jobs.run([ddptrain_bin, "--export-weights", tuned, newest / "model.safetensors"])
    assert within.returncode == 2 and "is inside the checkpoint to export and would damage it" in within.stderr, within.stderr


@pytest.mark.parametrize("arguments,words", [
    (("from", "to", "train.json", "max_steps=1"), "takes no further argument, found max_steps=1"),
    (("from", "to", "train.json", "more", "and more"), "takes no further argument, found more"),
])
def test_an_export_takes_no_override(ddptrain_bin, arguments, words):
    for option in ("--export-weights", "--export-adapter"):
        done = jobs.run([ddptrain_bin, option, *arguments])
        assert done.returncode == 2 and f"{option} CHECKPOINT" in done.stderr and words in done.stderr, done.stderr


def test_eval_checks_the_alpha_of_training(ddptrain_bin, tuned):
    other = jobs.run([ddptrain_bin, "eval", tuned, "model.lora.alpha=16"])
    assert other.returncode == 2 and "were trained with model.lora.alpha 8, but this config has 16" in other.stderr, other.stderr


@pytest.mark.parametrize("model,words", [
    ({**BASE, "lora": {"rank": 4, "modules": ["*.q_proj"]}}, "model.lora.modules: no linear layer matches '*.q_proj'. The names are transformer.h.0.attn.c_attn"),
    ({**BASE, "lora": {"rank": 4, "modules": []}}, "model.lora.modules: expected name patterns of the linear layers"),
    ({**BASE, "lora": {"rank": 4}, "freeze": ["*lora*"]}, "model.freeze leaves no parameter to train"),
    ({**BASE, "lora": {"rank": 1_000_000}}, "model.lora.rank: expected at most 32, found 1000000: the linear layer 'transformer.h.0.attn.c_attn' has 96 outputs and 32 inputs"),
    ({**BASE, "lora": {"rank": 4, "alpha": 0}}, "expected a number above 0, found 0 (/model/lora/alpha)"),
    ({"type": "exported", "path": "none", "lora": {"rank": 4}}, "expected 0 or no value with an exported model"),
])
def test_invalid_lora_settings_are_refused(ddprun_bin, ddptrain_bin, data, tmp_path, model, words):  # noqa: F811
    tokens = {"data": {"type": "tensors", "dir": "."}} if model["type"] == "exported" else {}
    train = config(data, model=model) if not tokens else {"model": model, **tokens}
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", train)])
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_initial_updates_need_the_alpha_of_training(ddprun_bin, ddptrain_bin, tuned, data, tmp_path):  # noqa: F811
    """Low-rank updates trained with a different `alpha` would give wrong results without an error, so ddptrain must refuse
    them."""
    def started(run: str, init: pathlib.Path, alpha: float):
        model = {**BASE, "init": str(init), "lora": {**LORA, "alpha": alpha}}
        train = jobs.write_config(tmp_path / "train.json", config(data, model=model, max_steps=1, eval_every_epochs=0))
        return jobs.run([ddprun_bin, "--run-dir", tmp_path / run, train])

    checkpoint, copy = tuned / "checkpoints/latest", tmp_path / "copy.safetensors"
    copy.write_bytes((checkpoint / "model.safetensors").read_bytes())
    for init in (checkpoint, checkpoint / "model.safetensors"):
        other = started("other", init, 16)
        assert other.returncode == 2, other.stderr
        assert (f"model.init: the low-rank updates of {init} were trained with model.lora.alpha 8, but this config has 16, "
                "which changes their results. Set model.lora.alpha to 8, or export that run with --export-weights") in other.stderr, other.stderr
    equal = started("equal", checkpoint, 8)
    assert equal.returncode == 0 and "alpha" not in equal.stderr, equal.stderr
    unknown = started("unknown", copy, 16)
    assert unknown.returncode == 0, unknown.stderr
    assert "the model.lora.alpha of its low-rank updates is unknown (no config.json), so this config's value is used: 16" in unknown.stderr, unknown.stderr
    assert jobs.run([ddptrain_bin, "--export-adapter", tuned, tmp_path / "adapter"]).returncode == 0
    for alone in (tmp_path / "adapter", tmp_path / "adapter/adapter_model.safetensors"):
        refused = started("alone", alone, 8)
        assert refused.returncode == 2, refused.stderr
        assert f"model.init: {alone} contains only low-rank updates, without the weights of their model: use the checkpoint that they come from" in refused.stderr, refused.stderr


def test_another_rank_and_a_missing_adapter_are_refused(ddprun_bin, ddptrain_bin, tuned, base, data, tmp_path):  # noqa: F811
    again = jobs.run([ddprun_bin, "--run-dir", tuned, tuned.parent / "train.json", "model.lora.rank=8", "epochs=3"])
    assert again.returncode == 2 and "/model/lora/rank" in again.stderr, again.stderr
    none = jobs.run([ddptrain_bin, "--export-adapter", base.parent / "run", tmp_path / "adapter"])
    assert none.returncode == 2 and "has no low-rank updates" in none.stderr and not (tmp_path / "adapter").exists(), none.stderr
