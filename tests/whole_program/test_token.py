"""Tests of `ddprun token` and of the copies of a token. Token files must be readable by one user only, the token may be printed
only on request, and the start of ddprun must not load OpenSSL."""

import os
import pathlib
import re
import shutil
import stat
import subprocess

import jobs
import pytest

GOOD = "5f0c6c1e9a47b83d20d1e4f7a95b3c68"


@pytest.fixture
def token(ddprun_bin, run, tmp_path):
    def start(*args, **environment):
        return run([ddprun_bin, "token", *args], **{"XDG_CONFIG_HOME": str(tmp_path / "config"), **environment})

    return start


def test_the_users_token_is_created_once_and_located(token, tmp_path):
    file = tmp_path / "config" / "ddprun" / "token"
    first = token()
    assert (first.returncode, first.stdout, first.stderr) == (0, f"{file} (created now)\n", "")
    content = file.read_text()
    assert re.fullmatch(r"[0-9a-f]{64}\n", content)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert token().stdout == f"{file}\n"
    assert token("--show").stdout == content == file.read_text()


def test_new_creates_a_file_and_never_replaces_one(token, tmp_path):
    assert token("--new", "job.token").stdout == f"{tmp_path / 'job.token'} (created now)\n"
    content = (tmp_path / "job.token").read_text()
    again = token("--new", "job.token")
    assert again.returncode == 2 and "already exists" in again.stderr
    assert (tmp_path / "job.token").read_text() == content
    assert token("--token-file=job.token", "--show").stdout == content
    assert token("--new", "another", "--show").stdout != content


def test_the_run_directory_and_the_variable(token, tmp_path):
    assert token("--run-dir", "run").stdout == f"{tmp_path / 'run' / 'token'} (created now)\n"
    assert token(DDPRUN_TOKEN=GOOD).stdout == "DDPRUN_TOKEN\n"
    assert token("--show", DDPRUN_TOKEN=GOOD).stdout == GOOD + "\n"
    assert not (tmp_path / "config" / "ddprun" / "token").read_text().startswith(GOOD)


@pytest.mark.parametrize("text, why", [("secret", "too short"), ("Summer2024!Winter2025!", "too short"), ("0123456789abcdef" * 2, "pattern"), ("", "is empty")])
def test_a_weak_token_is_refused_without_printing_it(token, tmp_path, text, why):
    (tmp_path / "weak").write_text(text)
    (tmp_path / "weak").chmod(0o600)
    done = token("--token-file", "weak", "--show")
    assert (done.returncode, done.stdout) == (81, "")
    assert why in done.stderr and done.stderr.count("\n") == 1
    assert not text or text not in done.stderr


def test_a_readable_token_is_refused_with_the_fix(token, tmp_path):
    (tmp_path / "job.token").write_text(GOOD)
    (tmp_path / "job.token").chmod(0o644)
    done = token("--token-file", "job.token")
    assert done.returncode == 81 and GOOD not in done.stderr
    subprocess.run(re.search(r"chmod 600 '[^']*'", done.stderr).group(), shell=True, cwd=tmp_path, check=True)
    assert token("--token-file", "job.token").returncode == 0


# This script mounts the volume of a Kubernetes Secret in the same way as the kubelet, and runs a command as a user that is not
# root. $1 contains the options of the mount, and $2 is the mode of the token file. The other arguments are the command. The
# mount is in a private mount namespace.
IN_A_POD = """
mount -t tmpfs secret /mnt && mkdir /mnt/..data && cat > /mnt/..data/token && chown 0:4321 /mnt/..data/token
chmod "$2" /mnt/..data/token && ln -s ..data/token /mnt/token && mount -o "remount,$1" /mnt || exit 77
shift 2
exec setpriv --reuid 1234 --regid 4321 --clear-groups -- "$@"
"""


@pytest.mark.parametrize("mount, mode, accepted", [("ro", "0440", True), ("rw", "0440", False), ("ro", "0444", False), ("ro", "0460", False)])
def test_a_pod_reads_the_token_of_a_secret_through_its_group(ddprun_bin, mount, mode, accepted):
    """A pod that does not run as root reads the token through its group. The file is accepted only if root owns it and the
    mount is read-only. The message for other files names the fields of the manifest that must change."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("unshare", "setpriv")):
        pytest.skip("a private mount and a second user need root, unshare and setpriv")
    private = subprocess.run(["unshare", "-m", "--propagation", "private", "true"], capture_output=True, text=True, check=False)
    if private.returncode != 0:  # for example in a chroot
        pytest.skip(f"cannot make a private mount on this machine: {private.stderr}")
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", IN_A_POD, "sh", mount, mode,
                           str(ddprun_bin), "token", "--token-file", "/mnt/token", "--show"],
                          input=GOOD + "\n", env=jobs.clean_environment(HOME="/"), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip(f"cannot mount a tmpfs on this machine: {done.stderr}")
    if accepted:
        assert (done.returncode, done.stdout) == (0, GOOD + "\n"), done.stderr
    else:
        assert (done.returncode, done.stdout) == (81, "") and GOOD not in done.stderr
        assert "defaultMode: 0440" in done.stderr and "readOnly: true" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["--new"], ["--new", "a", "--run-dir", "b"], ["x"], ["--verbose"]])
def test_a_mistake_is_one_line(token, args):
    done = token(*args)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "usage: ddprun token" in done.stderr


def test_workers_do_not_get_the_token(ddprun_bin, run, tmp_path):
    (tmp_path / "show.sh").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "show.sh").chmod(0o755)
    done = run([ddprun_bin, "--no-python", tmp_path / "show.sh"], DDPRUN_TOKEN=GOOD)
    assert done.returncode == 0, done.stderr
    assert "LOCAL_RANK=0" in done.stdout
    assert "DDPRUN_TOKEN" not in done.stdout and GOOD not in done.stdout


def processes_of(agent):
    """Returns the pids of an agent and of its guardian process."""
    return [agent.pid, *(pid for pid in jobs.children(agent.pid) if pathlib.Path(f"/proc/{pid}/comm").read_text() == "job-guardian\n")]


def copies_in_memory(pid, text):
    """Counts how often the text occurs in the writable memory and in the initial environment of a process."""
    count = pathlib.Path(f"/proc/{pid}/environ").read_bytes().count(text)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if "w" not in words[1] or (len(words) > 5 and words[5] == "[vvar]"):
                continue
            begin, end = (int(word, 16) for word in words[0].split("-"))
            memory.seek(begin)
            left = end - begin
            while left > 0:
                try:
                    piece = memory.read(min(left, 1 << 24))
                except OSError:
                    break
                if not piece:
                    break
                count += piece.count(text)
                left -= len(piece)
    return count


def running_job(tmp_path, *command, **environment):
    os.mkfifo(tmp_path / "runs")
    agent = jobs.start([*command, "--no-python", "sh", "-c", f"echo x > {tmp_path}/runs; sleep 100"], TMPDIR=str(tmp_path),
                       XDG_CONFIG_HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path), **environment)
    assert (tmp_path / "runs").read_text() == "x\n"
    return agent


def test_the_token_variable_is_removed_on_one_machine(ddprun_bin, tmp_path):
    agent = running_job(tmp_path, ddprun_bin, DDPRUN_TOKEN=GOOD)
    pids = processes_of(agent)
    assert len(pids) == 2
    assert [copies_in_memory(pid, GOOD.encode()) for pid in pids] == [0, 0]


@pytest.mark.parametrize("way", ["variable", "file"])
def test_a_multi_node_job_keeps_no_copy_of_its_token(ddprun_bin, tmp_path, way):
    (tmp_path / "job.token").write_text(GOOD + "\n")
    (tmp_path / "job.token").chmod(0o600)
    options = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-conf", "last_call_timeout=0.1"]
    if way == "variable":
        agent = running_job(tmp_path, ddprun_bin, *options, DDPRUN_TOKEN=GOOD)
    else:
        agent = running_job(tmp_path, ddprun_bin, *options, "--token-file", tmp_path / "job.token")
    pids = processes_of(agent)
    assert len(pids) == 2
    assert [copies_in_memory(pid, GOOD.encode()) for pid in pids] == [0, 0]


def test_a_joined_node_keeps_no_token_copy(nodes, script, tmp_path):
    nodes.token.write_text(GOOD + "\n")
    nodes.start("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", script("echo x > $OUT/at-work-$RANK; sleep 100"))
    address = nodes.until_printed(0, r"ddprun join (\S+:\d+)")[1]
    joined = jobs.start([nodes.ddprun, "join", address], DDPRUN_TOKEN=GOOD, TMPDIR=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "other"),
                        XDG_STATE_HOME=str(tmp_path / "other"))
    nodes.until(lambda: all((tmp_path / "out" / f"at-work-{rank}").exists() for rank in range(2)), "both workers")
    for agent in (nodes.agents[0], joined):
        pids = processes_of(agent)
        assert [copies_in_memory(pid, GOOD.encode()) for pid in pids] == [0, 0]


def test_ddprun_starts_without_openssl(ddprun_bin):
    needed = subprocess.run(["readelf", "-d", ddprun_bin], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in needed
    assert "ssl" not in needed and "crypto" not in needed
    assert (ddprun_bin.parent.parent / "lib" / "ddprun" / "libddprun_tls.so").exists()
