"""Tests of a GPU that fails or disappears. A restart does not repair the GPU, so the error names the device, and the node is
not used again. A test cannot damage a real GPU, so it injects the error of CUDA at a place where a kernel would raise it."""

import json

import jobs
import pytest
from jobs import free_port

ECC = "CUDA error: uncorrectable ECC error encountered"


def test_a_broken_device_is_named_and_not_retried(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, "--chaos", "device rank=1 step=10", config])
    assert done.returncode == 1, done.stderr
    report = jobs.report(run_dir)
    first = report["rounds"][0]["first_cause"]
    assert (first["cause"], first["rank"], first["step"]) == ("device", 1, 10)
    assert first["message"] == f"device cpu has failed: {ECC}"
    assert len(report["rounds"]) == 1 and report["restarts"]["used"] == 0
    assert "no restart on a failed GPU: hide it (CUDA_VISIBLE_DEVICES) or reset it" in done.stderr


def test_a_policy_may_retry_it(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"causes": {"device": 1}}), encoding="utf-8")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, "--restart-policy", policy,
                     "--chaos", "device rank=1 step=10", config])
    assert done.returncode == 0, done.stderr
    assert jobs.report(run_dir)["failures"] == {"device": 1}


@pytest.mark.parametrize("message,cause,rounds", [
    (f"RuntimeError: {ECC}\nCUDA kernel errors might be asynchronously reported at some other API call", "device", 1),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "exception", 2)])
def test_a_python_program_reports_it_too(ddprun_bin, tmp_path, run_dir, message, cause, rounds):
    script = tmp_path / "breaks.py"
    script.write_text("import json, os, sys\n"
                      f"json.dump({{'message': {message!r}, 'timestamp': 10}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
                      "sys.exit(3)\n", encoding="utf-8")
    done = jobs.run([ddprun_bin, "--max-restarts", 1, "--run-dir", run_dir, script])
    assert done.returncode == 3, done.stderr
    report = jobs.report(run_dir)
    assert [r["first_cause"]["cause"] for r in report["rounds"]] == [cause] * rounds
    assert ("device of local rank 0 has failed: " in report["rounds"][0]["first_cause"]["message"]) == (cause == "device")


def train_on(nodes, data, tmp_path, *, count: int, broken: int) -> list[int]:
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=3))
    command = ["--nnodes", f"{count - 1}:{count}", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", free_port(),
               "--run-dir", tmp_path / "run", "--rdzv-conf", "heartbeat_timeout=2,last_call_timeout=0.5",
               "--chaos", f"device rank={broken} step=10", config]
    for _ in range(count):
        nodes.start(*command)
        nodes.until_printed(0, "coordinates the job")
    return nodes.wait()


def test_its_node_leaves_and_the_other_continues(nodes, data, tmp_path, ddptrain_bin):
    assert train_on(nodes, data, tmp_path, count=2, broken=1) == [0, 1], nodes.all_text()
    assert f"device cpu has failed: {ECC}" in nodes.text(1)
    assert "this node leaves the job: one of its devices has failed" in nodes.text(1)
    assert "1 node, 1 worker" in nodes.text(0)
    jobs.assert_each_sample_once(tmp_path / "run", epochs=3)


def test_the_coordinators_node_leaves_and_the_others_elect_another(nodes, data, tmp_path, ddptrain_bin):
    assert train_on(nodes, data, tmp_path, count=3, broken=0) == [1, 0, 0], nodes.all_text()
    assert "this node leaves the job: one of its devices has failed" in nodes.text(0)
    for number in (1, 2):
        assert f"device cpu has failed: {ECC}" in nodes.text(number)
        assert "2 nodes, 2 workers" in nodes.text(number)
    jobs.assert_each_sample_once(tmp_path / "run", epochs=3)


def test_it_ends_the_job_if_too_few_nodes_remain(nodes, data, tmp_path, ddptrain_bin):
    assert train_on(nodes, data, tmp_path, count=2, broken=0) == [1, 1], nodes.all_text()
    for number in range(2):
        assert "no restart on a failed GPU" in nodes.text(number)
