"""Tests of rare situations: files in unusual places, machines without /proc or without free descriptors, and reports that
cannot be written."""

import json
import os
import shutil
import subprocess

import jobs
import pytest
from disks import small_disk


def without_proc(*words, timeout=60):
    """Runs the command with an empty /proc. Only the mount of /proc is made private, because in a chroot the propagation of
    other mounts cannot be changed."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("private mounts need root")
    script = 'mount --make-private /proc && mount -t tmpfs none /proc && exec "$@"'
    return subprocess.run(["unshare", "-m", "--propagation", "unchanged", "sh", "-c", script, "sh", *map(str, words)], capture_output=True, text=True,
                          timeout=timeout,
                          stdin=subprocess.DEVNULL, env=jobs.clean_environment(), check=False)


def test_an_unreadable_path_is_a_usage_error(ddprun_bin, run, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    done = run([ddprun_bin, "report", tmp_path / "loop"])
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"'{tmp_path}/loop' cannot be used: Too many levels of symbolic links" in done.stderr


@pytest.mark.parametrize("limit", [8, 9, 10, 11, 12, 16])
def test_too_few_descriptors_are_reported(ddprun_bin, tmp_path, limit):
    done = subprocess.run(["sh", "-c", f'ulimit -n {limit}; exec "$0" --no-python true', ddprun_bin], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, cwd=tmp_path, env=jobs.clean_environment(TMPDIR=str(tmp_path)), check=False)
    assert done.returncode in (0, 89)
    assert done.returncode == 0 or "descriptors" in done.stderr or "open files" in done.stderr, done.stderr


def test_a_pipe_without_a_writer_is_not_a_config(ddprun_bin, run, tmp_path):
    os.mkfifo(tmp_path / "train.json")
    done = run([ddprun_bin, "--dry-run", tmp_path / "train.json"], timeout=60)
    assert done.returncode == 2 and "is a named pipe without a writer (waited for 5 s): use a regular config file" in done.stderr


def test_a_config_may_come_through_a_pipe(ddprun_bin, ddptrain_bin, tmp_path):
    """The config is read from a pipe. The writer of the pipe opens it only after ddprun has started to read, and writes
    slowly."""
    config = jobs.write_config(tmp_path / "config", jobs.config(jobs.write_small_dataset(tmp_path / "data")))
    os.mkfifo(tmp_path / "train.json")
    with subprocess.Popen(["sh", "-c", "sleep 0.2; exec 3> train.json; head -c 20 config >&3; sleep 0.2; tail -c +21 config >&3"], cwd=tmp_path):
        done = jobs.run([ddprun_bin, "--dry-run", "--nproc-per-node", 1, tmp_path / "train.json"], timeout=60, cwd=tmp_path)
    assert config.exists() and done.returncode == 0, done.stderr


def test_ddptrain_is_found_without_proc(ddprun_bin, ddptrain_bin, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data")))
    done = without_proc(ddprun_bin, "--dry-run", "--nproc-per-node", 1, "--run-dir", tmp_path / "run", config)
    assert done.returncode == 0, done.stderr
    assert str(ddptrain_bin) in done.stdout


def test_an_unwritable_report_is_a_warning_and_not_the_cause(ddprun_bin, run, tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        fills = "head -c 1M /dev/zero > $0; exit 3"
        done = run([ddprun_bin, "--run-dir", disk / "run", "--no-python", "sh", "-c", fills, disk / "filler"])
        assert done.returncode == 3
        assert f"ddprun: the final report could not be written to {disk}/run/report.json: No space left on device" in done.stderr, done.stderr
        (disk / "filler").unlink()
        done = run([ddprun_bin, "--run-dir", disk / "run", "--no-python", "true"])
        assert done.returncode == 0, done.stderr
        first = json.loads((disk / "run" / "report.json").read_text())["invocations"][0]["exit"]
        assert "or the report could not be written (disk full?)" in first["why"]
