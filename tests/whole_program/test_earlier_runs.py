"""Tests of a run directory that an earlier version of ddprun has written. The current version must resume, report and export
the run like the version that wrote it. The build of commit 0486c00 trained earlier/0486c00 for 20 of 40 steps, with two
workers, one of which was killed. After that, only the paths in its JSON files were changed."""

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


def test_an_earlier_run_resumes_to_the_uninterrupted_weights(ddprun_bin, run, earlier, config, tmp_path):
    """The weights are compared bit by bit only if this machine computes the first 20 steps exactly like the machine that wrote
    the run. Another kind of CPU may round differently."""
    done = run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", earlier, config, "max_steps=40"])
    assert done.returncode == 0 and "continuing from step 20" in done.stdout, done.stdout + done.stderr
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
    assert len(digests) == 1, "the digest names the folder of checkpoint copies, so it must not change"
    rounds = jobs.report(earlier)["rounds"]
    assert [r["invocation"] for r in rounds] == [0, 0, 1] and rounds[0]["first_cause"]["signal_name"] == "SIGKILL"


def test_the_old_and_new_formats_resume_bitwise_equal(ddprun_bin, run, earlier, config, tmp_path):
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
        assert done.returncode == 0 and "continuing from step 20" in done.stdout, done.stdout + done.stderr
    assert jobs.weights_digest(earlier) == jobs.weights_digest(tmp_path / "present")


def test_a_finished_earlier_run_stays_finished(ddprun_bin, run, earlier, config):
    before = {path: path.read_bytes() for path in (earlier / "checkpoints").rglob("*.safetensors")}
    done = run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", earlier, config])
    assert done.returncode == 0 and "is already done: 20 steps" in done.stdout, done.stdout + done.stderr
    assert {path: path.read_bytes() for path in (earlier / "checkpoints").rglob("*.safetensors")} == before


def test_an_earlier_report_is_read(ddprun_bin, run, earlier, tmp_path):
    done = run([ddprun_bin, "report", earlier])
    assert done.returncode == 0, done.stderr
    for words in ("rank 1", "signal 9 (SIGKILL)", "step 12", "43.50 %"):
        assert words in done.stdout, done.stdout
    done = run([ddprun_bin, "report", "--json", earlier])
    assert done.returncode == 0 and json.loads(done.stdout)["rounds"][0]["first_cause"]["step"] == 12
    done = run([ddprun_bin, "report", "--html", tmp_path / "report.html", earlier])
    assert done.returncode == 0 and "SIGKILL" in (tmp_path / "report.html").read_text(encoding="utf-8"), done.stderr
