"""Tests of errors in a user's worker program. An error must end the run immediately. The output must contain the text of the
error, or a stack trace that shows where the error occurred."""

import re
import shutil

import jobs
import pytest


@pytest.fixture
def faulty_worker(ddprun_bin):
    worker = ddprun_bin.parent.parent / "tests" / "own_worker" / "faulty_worker"
    if not worker.exists():
        pytest.skip("needs a build with the trainer")
    return worker


def train(ddprun, worker, tmp_path, fault: str, workers: int = 2, restarts: int = 0):
    config = jobs.write_config(tmp_path / "train.json", {
        "name": "faulty", "data": {"dir": "."}, "max_steps": 8, "batch_size": 16, "optimizer": {"type": "sgd", "lr": 0.1}, "task": {"fault": fault}})
    return jobs.run([ddprun, "--worker", worker, "--nproc-per-node", workers, "--max-restarts", restarts, "--run-dir", tmp_path / "run", config])


def failure(tmp_path) -> dict:
    return jobs.report(tmp_path / "run")["rounds"][0]["first_cause"]


@pytest.mark.parametrize(("fault", "text"), [("make_module", "weights.bin is not there"), ("describe", "no header to describe")])
def test_an_error_before_the_first_group_ends_the_run(ddprun_bin, faulty_worker, tmp_path, fault, text):
    """A regression test. After this error, ddprun retried without a limit, with full CPU load and without a message."""
    done = train(ddprun_bin, faulty_worker, tmp_path, fault)
    assert done.returncode == 1, done.stdout + done.stderr
    assert text in done.stderr and failure(tmp_path)["message"] == text


def test_a_nondeterministic_module_is_refused(ddprun_bin, faulty_worker, tmp_path):
    done = train(ddprun_bin, faulty_worker, tmp_path, "other weights")
    assert done.returncode == 2 and "a second call with the same seed returned a different parameter 'weight'" in done.stderr, done.stdout + done.stderr


def test_a_refusing_data_server_is_not_a_lost_rank(ddprun_bin, faulty_worker, tmp_path):
    done = train(ddprun_bin, faulty_worker, tmp_path, "refused")
    assert done.returncode == 1 and "Connection refused" in done.stderr, done.stdout + done.stderr
    assert failure(tmp_path)["cause"] == "exception" and "lost a peer" not in done.stderr, done.stderr


def test_out_of_memory_while_reading_does_not_shrink_the_batch(ddprun_bin, faulty_worker, tmp_path):
    done = train(ddprun_bin, faulty_worker, tmp_path, "no memory for data")
    assert failure(tmp_path)["cause"] == "out_of_memory" and done.returncode == 84, done.stdout + done.stderr
    assert "a smaller batch does not help" in done.stderr and not (tmp_path / "run/memory-fit.json").exists(), done.stderr


def test_a_crash_prints_functions_and_lines(ddprun_bin, faulty_worker, tmp_path):
    if not shutil.which("addr2line"):
        pytest.skip("needs addr2line")
    done = train(ddprun_bin, faulty_worker, tmp_path, "crash")
    assert done.returncode == 139, done.stdout + done.stderr
    stack = "\n".join(failure(tmp_path)["stderr_tail"])
    assert "crash: signal 11" in stack and re.search(r"Learns::(crash|loss)\(.*\).* at \S*faulty_worker.cpp:\d+", stack), stack


def test_a_shape_error_prints_functions_and_lines(ddprun_bin, faulty_worker, tmp_path):
    if not shutil.which("addr2line"):
        pytest.skip("needs addr2line")
    done = train(ddprun_bin, faulty_worker, tmp_path, "shape")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "shape '[-1, 7]' is invalid" in failure(tmp_path)["message"]
    stack = "\n".join(failure(tmp_path)["stderr_tail"])
    assert re.search(r"Learns::loss\(.*\) const at \S*faulty_worker.cpp:\d+", stack), stack
