"""A run directory that an earlier ddprun left: it is resumed, reported and exported as its own version would. earlier/0486c00 was trained for 20 of 40
steps by the build of that commit, on two workers of which one was killed; only the paths in its JSON were changed afterwards."""

import json
import pathlib
import shutil

import jobs
import numpy as np
import pytest
from safetensors.numpy import load_file
from test_readers import xxh3_128

EARLIER = pathlib.Path(__file__).parent / "earlier" / "0486c00"


@pytest.fixture
def earlier(tmp_path) -> pathlib.Path:
    shutil.copytree(EARLIER / "run", tmp_path / "earlier", symlinks=True)
    return tmp_path / "earlier"


@pytest.fixture
def config(tmp_path) -> pathlib.Path:
    content = json.loads((EARLIER / "train.json").read_text(encoding="utf-8"))
    content["data"]["dir"] = str(jobs.write_small_dataset(tmp_path / "data"))
    return jobs.write_config(tmp_path / "train.json", content)


def test_it_is_resumed_to_the_weights_of_a_run_that_was_never_interrupted(ddprun_bin, run, earlier, config, tmp_path):
    """To the bit where this machine computes the first 20 steps as that one did, which another kind of CPU may not."""
    done = run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", earlier, config, "max_steps=40"])
    assert done.returncode == 0 and "going on from step 20" in done.stdout, done.stdout + done.stderr
    assert [step for step, _ in jobs.losses(earlier)] == list(range(1, 41))
    done = run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "whole", config, "max_steps=40", "checkpoint.keep=9"])
    assert done.returncode == 0, done.stderr
    step_20 = [(folder / "checkpoints/step-000000020/model.safetensors").read_bytes() for folder in (EARLIER / "run", tmp_path / "whole")]
    if step_20[0] == step_20[1]:
        assert jobs.weights_digest(earlier) == jobs.weights_digest(tmp_path / "whole")
    for file in ("model.safetensors", "optimizer.safetensors"):
        resumed, whole = (load_file(folder / "checkpoints/latest" / file) for folder in (earlier, tmp_path / "whole"))
        assert resumed.keys() == whole.keys() and len(whole) > 3
        for name, tensor in whole.items():
            np.testing.assert_allclose(resumed[name], tensor, rtol=1e-3, atol=1e-5, err_msg=name)
    for (step, a), (_, b) in zip(jobs.losses(earlier), jobs.losses(tmp_path / "whole"), strict=True):
        assert a == pytest.approx(b, rel=1e-4), f"step {step}"
    digests = {json.loads(file.read_text(encoding="utf-8"))["config_digest"] for file in (earlier / "checkpoints").glob("step-*/manifest.json")}
    assert len(digests) == 1, "it names the folder of copies on nodes' own disks"
    rounds = jobs.report(earlier)["rounds"]
    assert [r["invocation"] for r in rounds] == [0, 0, 1] and rounds[0]["first_cause"]["signal_name"] == "SIGKILL"


def test_its_format_and_the_present_one_are_resumed_to_the_same_bits(ddprun_bin, run, earlier, config, tmp_path):
    checksum = xxh3_128()
    shutil.copytree(earlier, tmp_path / "present", symlinks=True)
    file = tmp_path / "present/checkpoints/latest/manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    assert manifest.pop("version") == 1 and manifest.pop("xxh3_128")
    for name, facts in manifest["files"].items():
        facts["role"] = name.removesuffix(".safetensors")
    manifest |= {"version": 2, "values": {}}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    file.write_text(json.dumps(manifest | {"xxh3_128": checksum(text.encode())}), encoding="utf-8")
    for folder in (earlier, tmp_path / "present"):
        done = run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", folder, config, "max_steps=40"])
        assert done.returncode == 0 and "going on from step 20" in done.stdout, done.stdout + done.stderr
    assert jobs.weights_digest(earlier) == jobs.weights_digest(tmp_path / "present")


def test_what_is_done_stays_done(ddprun_bin, run, earlier, config):
    before = {path: path.read_bytes() for path in (earlier / "checkpoints").rglob("*.safetensors")}
    done = run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", earlier, config])
    assert done.returncode == 0 and "is already done: 20 steps" in done.stdout, done.stdout + done.stderr
    assert {path: path.read_bytes() for path in (earlier / "checkpoints").rglob("*.safetensors")} == before


def test_its_report_is_read(ddprun_bin, run, earlier, tmp_path):
    done = run([ddprun_bin, "report", earlier])
    assert done.returncode == 0, done.stderr
    for words in ("rank 1", "signal 9 (SIGKILL)", "step 12", "43.50 %"):
        assert words in done.stdout, done.stdout
    done = run([ddprun_bin, "report", "--json", earlier])
    assert done.returncode == 0 and json.loads(done.stdout)["rounds"][0]["first_cause"]["step"] == 12
    done = run([ddprun_bin, "report", "--html", tmp_path / "report.html", earlier])
    assert done.returncode == 0 and "SIGKILL" in (tmp_path / "report.html").read_text(encoding="utf-8"), done.stderr
