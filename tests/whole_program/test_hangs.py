"""Tests of hang detection. A worker that makes no progress must be reported with its state and stack, and the job must continue
after a restart. Slow workers must not be reported."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import jobs
import pytest


@pytest.fixture(scope="module")
def calm(ddprun_bin, data, tmp_path_factory) -> pathlib.Path:
    """Runs the config without faults, and returns the run directory."""
    folder = tmp_path_factory.mktemp("calm")
    done = train(ddprun_bin, folder, data)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def train(ddprun, folder: pathlib.Path, data: pathlib.Path, fault: str = "", *flags, **env: str):
    config = jobs.write_config(folder / "train.json", jobs.config(data))
    return jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", folder / "run", *flags, config], DDPTRAIN_FAULT=fault, **env)


def fake_stack_tool(folder: pathlib.Path) -> str:
    """Returns a PATH on which py-spy and eu-stack are replaced by scripts that answer immediately. So the test does not depend
    on the tools of this machine."""
    folder.mkdir()
    for name in ("py-spy", "eu-stack"):
        tool = folder / name
        tool.write_text('#!/bin/sh\necho "PID $3 - process"\necho "TID $3:"\necho "#0  0x01 waits_here"\n')
        tool.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("fault,rank,reason", [
    ("stop rank=1 step=17", 1, "is stopped (SIGSTOP or a debugger); rank 0 waits in the all-reduce of the gradients of step 18"),
    ("hang rank=0 step=17 phase=optimizer", 0, "is in the optimizer of step 18; rank 1 waits in the all-reduce of the gradients of step 19"),
    ("hang rank=1 step=17 phase=backward", 1, "is in the forward or backward pass of step 18; rank 0 waits in the all-reduce of the gradients of step 18"),
    ("loop rank=1 step=17 phase=backward", 1, "is in the forward or backward pass of step 18; rank 0 waits in the all-reduce of the gradients of step 18"),
    ("hang rank=1 step=20 phase=evaluating", 1, "is in the evaluation after step 20; rank 0 waits in the sum of the evaluation after step 20"),
    ("hang rank=0 step=10 phase=saving", 0, "in the checkpoint after step 14"),
])
def test_a_hanging_rank_is_named_and_numbers_stay_equal(ddprun_bin, data, calm, tmp_path, fault, rank, reason):
    config = {"background": False} if "saving" in fault else {}
    file = jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"every_steps": 7, "keep": 3, **config}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", "--hang-timeout", 2, file], DDPTRAIN_FAULT=fault,
                    PATH=fake_stack_tool(tmp_path / "bin"))
    assert done.returncode == 0, done.stderr
    report = jobs.report(tmp_path / "run")
    first = report["rounds"][0]["first_cause"]
    assert (first["cause"], first["rank"]) == ("hang", rank)
    assert reason in first["message"]
    assert "(limit 2.0 s, --hang-timeout)" in first["message"]
    assert first["message"] in done.stderr
    assert any(line.strip() == "#0  0x01 waits_here" for line in first["evidence"]), first["evidence"]
    assert first["evidence"][0].startswith(f"rank {rank}: ")
    assert "CPU time" in first["evidence"][0]
    assert ("state R (running)" in first["evidence"][0]) == fault.startswith("loop")
    assert report["restarts"]["used"] == 1
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(calm)


def test_a_rank_that_never_joins(ddprun_bin, data, tmp_path):
    """Rank 1 stops before it joins the process group. The time limit for the start must be longer than a start takes on a busy
    machine."""
    done = train(ddprun_bin, tmp_path, data, "stop rank=1 phase=joining", "--hang-timeout", "start=10", "--max-restarts", 1,
                 PATH=fake_stack_tool(tmp_path / "bin"))
    assert done.returncode == 0, done.stderr
    first = jobs.report(tmp_path / "run")["rounds"][0]["first_cause"]
    assert (first["cause"], first["rank"]) == ("hang", 1)
    assert "rank 0 waits for all ranks to join" in first["message"]


def test_repeated_hangs_at_one_step_end_the_job(ddprun_bin, data, tmp_path):
    """--hang-timeout sets the time limit for steps, so the limit is not derived from the run. No tool that prints stacks is
    available."""
    (tmp_path / "empty").mkdir()
    done = train(ddprun_bin, tmp_path, data, "hang rank=1 step=3", "--hang-timeout", "step=1", "--max-restarts", 0,
                 PATH=str(tmp_path / "empty"))
    assert done.returncode == 82, done.stderr
    assert "rank 0 waits in the all-reduce of the gradients of step 4" in done.stderr
    assert jobs.report(tmp_path / "run")["exit"]["code"] == 82


def script_job(ddprun, tmp_path, text: str, *flags, workers: int = 2):
    (tmp_path / "train.py").write_text(text)
    return jobs.run([ddprun, "--nproc-per-node", workers, "--standalone", *flags, tmp_path / "train.py"], TMPDIR=str(tmp_path),
                    PYTHON_EXEC=sys.executable, PATH=fake_stack_tool(tmp_path / "bin"))


def report_of_script(tmp_path: pathlib.Path) -> dict:
    return json.loads(next(tmp_path.glob("torchelastic_*/**/report.json")).read_text())


def test_a_silent_script_is_a_hang_if_configured(ddprun_bin, tmp_path):
    done = script_job(ddprun_bin, tmp_path, "import os, signal\n"
                      "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
                      "    print('waiting', flush=True)\n"
                      "    signal.pause()\n", "--hang-timeout", 1, "--max-restarts", 1)
    assert done.returncode == 0, done.stderr
    assert "hangs: no output of any worker for" in done.stderr
    assert "waits_here" in done.stderr
    first = report_of_script(tmp_path)["rounds"][0]["first_cause"]
    assert first["cause"] == "hang"
    assert "state S (sleeping)" in first["evidence"][0]


def test_an_endless_loop_is_detected(ddprun_bin, tmp_path):
    done = script_job(ddprun_bin, tmp_path, "import os, signal\n"
                      "if os.environ['RANK'] == '1':\n"
                      "    while True: pass\n"
                      "signal.pause()\n", "--hang-timeout", 1)
    assert done.returncode == 82, done.stderr
    causes = report_of_script(tmp_path)["rounds"][0]
    evidence = [line for cause in [causes["first_cause"], *causes["consequences"]] for line in cause["evidence"]]
    assert any(line.startswith("rank 1: state R (running)") for line in evidence), evidence
    assert any(line.startswith("rank 0: state S (sleeping)") for line in evidence), evidence


def test_an_early_exit_is_named_with_the_waiting_ranks(ddprun_bin, tmp_path):
    done = script_job(ddprun_bin, tmp_path, "import os, signal\nif os.environ['RANK'] == '0':\n    signal.pause()\n", "--hang-timeout", 1)
    assert done.returncode == 82, done.stderr
    assert "rank 1 exited with code 0 before the hang: the other ranks may be waiting for it" in done.stderr


def test_a_script_that_prints_is_not_a_hang(ddprun_bin, tmp_path):
    """Only rank 1 prints, at intervals shorter than --hang-timeout. Its stderr is redirected to a file, which ddprun does not
    read, but lines in this file must also count as progress."""
    done = script_job(ddprun_bin, tmp_path, "import os, sys, time\n"
                      "for i in range(12):\n"
                      "    time.sleep(0.3)\n"
                      "    if os.environ['RANK'] == '1':\n"
                      "        print('step', i, flush=True, file=sys.stderr if i < 6 else sys.stdout)\n",
                      "--hang-timeout", 1.5, "--redirects", 2, "--log-dir", tmp_path / "logs")
    assert done.returncode == 0, done.stderr
    assert "hangs" not in done.stderr


@pytest.mark.needs_torch_python
@pytest.mark.long
def test_a_script_in_which_a_rank_skips_a_collective(ddprun_bin, tmp_path):
    done = script_job(ddprun_bin, tmp_path, "import signal, torch, torch.distributed as dist\n"
                      "dist.init_process_group('gloo')\n"
                      "print('joined', flush=True)\n"
                      "if dist.get_rank() == 0:\n"
                      "    dist.all_reduce(torch.ones(3))\n"
                      "else:\n"
                      "    signal.pause()\n", "--hang-timeout", 10)
    assert done.returncode == 82, done.stderr
    assert "hangs: no output of any worker for 10 s" in done.stderr
    causes = report_of_script(tmp_path)["rounds"][0]
    assert causes["first_cause"]["cause"] == "hang"
    assert any("waits_here" in line for line in causes["consequences"][0]["evidence"])


def slow_fsync(folder: pathlib.Path) -> pathlib.Path:
    """Builds a library for LD_PRELOAD that makes fsync slow for files whose paths contain $SLOW_FSYNC_OF. Returns its path."""
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("needs a C compiler")
    library = folder / "slow_fsync.so"
    source = pathlib.Path(__file__).with_name("slow_fsync.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return library


def test_no_collective_times_out_during_the_last_save(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, ddp={"timeout_s": 3}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 0, "--run-dir", tmp_path / "run", config],
                    LD_PRELOAD=str(slow_fsync(tmp_path)), SLOW_FSYNC_OF="step-000000040", SLOW_FSYNC_SECONDS="5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run/checkpoints/step-000000040/manifest.json").exists()


@pytest.mark.long
def test_a_stalled_disk_in_the_last_save_is_not_a_hang(ddprun_bin, data, tmp_path):
    """The last save takes 110 s. The earlier saves took milliseconds, so a time limit that is derived from these saves would
    be one minute, which is the minimum."""
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"every_steps": 7}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config], timeout=400,
                    LD_PRELOAD=str(slow_fsync(tmp_path)), SLOW_FSYNC_OF="step-000000040", SLOW_FSYNC_SECONDS="110")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hangs" not in done.stderr
    assert (tmp_path / "run/checkpoints/step-000000040/manifest.json").exists()


def test_the_limits_are_shown_by_a_dry_run(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    shown = jobs.run([ddprun_bin, "--dry-run", "--hang-timeout", "60,save=300", config], cwd=tmp_path)
    assert "step 60 s, evaluate 60 s, save 300 s, end 60 s, others learned from the run" in shown.stdout
    wrong = jobs.run([ddprun_bin, "--hang-timeout", "auto", "--no-python", "true"], cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--hang-timeout: expected off or a number of seconds" in wrong.stderr
