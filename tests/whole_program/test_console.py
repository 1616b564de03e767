"""Tests of the console output for a train.json. A small program that only implements the channel protocol replaces ddptrain, so
these tests do not need LibTorch."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys

import pytest

WORKER = f"""#!{sys.executable}
import json, os, signal, struct, sys
fd = int(os.environ["DDPRUN_CHANNEL"].split(":")[1])
rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def send(kind, **fields):
    text = json.dumps({{"type": kind, **fields}}).encode()
    os.write(fd, struct.pack("<II", len(text) + 4, len(text)) + text)

def progress(step):
    if rank == 0:
        send("progress", step=step, steps_total=60, epoch=0, epochs=1, samples=8 * step, loss=0.5, lr=0.1, samples_per_s=1234.5)

send("hello", protocol=1, version="test", pid=os.getpid())
send("phase", phase="running", step=0, epoch=0)
progress(10)
print("a line", flush=True)
if rank == 1 and restart == 0 and os.environ.get("FAIL"):
    print("final line", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
if os.environ.get("FAIL") and restart == 0:
    signal.pause()
progress(60)
if rank == 0:
    send("eval", step=60, epoch=0, samples=100, **{{"figures": [["loss", 0.25], ["accuracy", 0.9041]]}})
send("phase", phase="done", step=60, epoch=0)
"""


@pytest.fixture
def launcher(ddprun_bin, tmp_path) -> pathlib.Path:
    """Returns the path of a copy of ddprun, in a folder with the replacement for ddptrain."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(ddprun_bin, folder / "ddprun")
    (folder / "ddptrain").write_text(WORKER, encoding="utf-8")
    (folder / "ddptrain").chmod(0o755)
    (tmp_path / "train.json").write_text(json.dumps({"name": "small", "device": "cpu", "batch_size": 8, "data": {"dir": "data"}}))
    return folder / "ddprun"


def test_plain_lines_show_the_course_of_a_job(launcher, run, tmp_path):
    done = run([launcher, "--nproc-per-node", "2", "train.json"], FAIL="1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"small: 2 workers on cpu, run directory {tmp_path}/runs/small"
    assert re.fullmatch(r"rank 0 pid \d+, rank 1 pid \d+", lines[1])
    assert "[rank 0] a line" in lines and "[rank 1] a line" in lines
    assert "epoch 1/1, step 60: test accuracy 90.41 %, loss 0.2500 on 100 samples" in lines
    assert re.fullmatch(rf"done: test accuracy 90.41 %, 60 steps in .*, 1 restart, {tmp_path}/runs/small", lines[-1])
    assert re.search(r"^ddprun: rank 1 \(pid \d+\) failed: signal 9 \(SIGKILL\)", done.stderr, flags=re.MULTILINE)
    assert "    | final line\n" in done.stderr
    assert f"{tmp_path}/runs/small/logs/round-000/rank-00001/stderr.log" in done.stderr
    report = json.loads((tmp_path / "runs/small/report.json").read_text())
    assert [r["decision"] for r in report["rounds"]] == ["restart", "end"]
    assert report["rounds"][0]["first_cause"]["rank"] == 1
    assert report["evaluation"]["accuracy"] == 0.9041 and report["last_step"] == 60 and report["exit"]["code"] == 0


def test_a_worker_of_another_major_version_is_refused_in_one_line(launcher, run):
    worker = launcher.parent / "ddptrain"
    worker.write_text(worker.read_text().replace('protocol=1, version="test"', 'protocol=2, minor=3, version="ddptrain 9.0"'))
    done = run([launcher, "--nproc-per-node", "1", "train.json"])
    assert done.returncode == 2
    assert re.match(r"ddprun: rank 0 \(pid \d+\) failed: ddptrain 9\.0 uses version 2\.3 of the worker channel, this ddprun uses version 1\.\d+: "
                    r"install both from the same release\n", done.stderr), done.stderr
    assert "no restart after a usage error" in done.stderr


def test_quiet_prints_only_the_end(launcher, run):
    done = run([launcher, "-q", "train.json"])
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"done: .*\n", done.stdout) and done.stderr == ""


def test_json_has_every_event(launcher, run):
    done = run([launcher, "--json", "train.json"])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"run_started", "round_started", "worker_started", "hello", "phase", "progress", "evaluation", "output", "worker_ended",
            "run_ended"} <= {e["event"] for e in events}


def test_lines_do_not_break_the_progress_bar(launcher, tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen([str(launcher), "train.json"], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as job:
        os.close(theirs)
        text = b""
        while select.select([ours], [], [], 30)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the shell has closed its end of the terminal
                break
            text += piece
        assert job.wait(30) == 0
    os.close(ours)
    shown = text.decode()
    assert "\x1b[36m[rank 0] \x1b[0ma line\r\n" in shown
    assert re.search(r"\r\x1b\[K\[?[#.]*\]?\s*epoch 1/1  step 10/60", shown), shown
    # Every line after a progress bar must erase the bar first.
    for bar in re.finditer(r"step \d+/60[^\r\n]*", shown):
        assert shown[bar.end():].startswith("\r\x1b[K"), shown


def test_a_second_start_reports_how_the_first_ended(launcher, run, tmp_path):
    assert run([launcher, "train.json"]).returncode == 0
    report = tmp_path / "runs/small/report.json"
    content = json.loads(report.read_text())
    content["exit"] = content["invocations"][0]["exit"] = None
    report.write_text(json.dumps(content))
    done = run([launcher, "train.json"])
    assert done.returncode == 0 and "unfinished report" in done.stdout
    assert len(json.loads(report.read_text())["invocations"]) == 2
