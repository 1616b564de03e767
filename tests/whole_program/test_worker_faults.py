"""Tests of workers that kill themselves with a signal, and of a job with a thousand workers."""

import resource

import jobs
import pytest


@pytest.mark.parametrize("number,name,deed", [(6, "SIGABRT", "os.abort()"), (11, "SIGSEGV", "ctypes.string_at(0)")])
def test_a_worker_killed_by_its_own_signal(ddprun_bin, tmp_path, run_dir, number, name, deed):
    script = tmp_path / "dies.py"
    script.write_text("import ctypes, os, resource, signal, sys\n"
                      "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
                      "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
                      "    if os.environ['RANK'] == '0': signal.pause()\n"
                      "    print('the final line', file=sys.stderr, flush=True)\n"
                      f"    {deed}\n", encoding="utf-8")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 1, "--run-dir", run_dir, script])
    assert done.returncode == 0, done.stderr
    assert f"rank 1 (pid {jobs.report(run_dir)['rounds'][0]['first_cause']['pid']}) failed: signal {number} ({name})" in done.stderr
    first = jobs.report(run_dir)["rounds"][0]["first_cause"]
    assert (first["cause"], first["rank"], first["signal_name"]) == ("signal", 1, name)
    assert "the final line" in first["stderr_tail"]
    assert jobs.report(run_dir)["restarts"]["used"] == 1


def enough_descriptors(workers: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < 4 * workers:
        pytest.skip(f"needs {4 * workers} descriptors, the limit here is {limit}")


@pytest.mark.long
def test_a_thousand_workers(ddprun_bin, run_dir):
    """One worker fails while the other workers wait. After the restart, all workers exit with code 0."""
    enough_descriptors(1000)
    script = 'test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; test $RANK = 777 && exit 3; read word; sleep 600'
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1000, "--max-restarts", 1, "--run-dir", run_dir, "--no-python", "sh", "-c", script])
    assert done.returncode == 0, done.stderr
    assert "rank 777 " in done.stderr and "restart 1 of 1" in done.stderr
    rounds = jobs.report(run_dir)["rounds"]
    assert [len(r["workers"]) for r in rounds] == [1000, 1000]
    assert rounds[0]["first_cause"]["rank"] == 777
