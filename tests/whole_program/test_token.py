"""`ddprun token` and what a token leaves behind: files for one user, no token where nobody asked for it, and no OpenSSL at the start."""

import re
import stat
import subprocess

import pytest

GOOD = "5f0c6c1e9a47b83d20d1e4f7a95b3c68"


@pytest.fixture
def token(ddprun_bin, run, tmp_path):
    def start(*args, **environment):
        return run([ddprun_bin, "token", *args], **{"XDG_CONFIG_HOME": str(tmp_path / "config"), **environment})

    return start


def test_it_says_where_the_users_token_is_and_makes_it_once(token, tmp_path):
    file = tmp_path / "config" / "ddprun" / "token"
    first = token()
    assert (first.returncode, first.stdout, first.stderr) == (0, f"{file} (made now)\n", "")
    content = file.read_text()
    assert re.fullmatch(r"[0-9a-f]{64}\n", content)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert token().stdout == f"{file}\n"
    assert token("--show").stdout == content == file.read_text()


def test_new_makes_a_file_and_never_replaces_one(token, tmp_path):
    assert token("--new", "job.token").stdout == f"{tmp_path / 'job.token'} (made now)\n"
    content = (tmp_path / "job.token").read_text()
    again = token("--new", "job.token")
    assert again.returncode == 2 and "is there already" in again.stderr
    assert (tmp_path / "job.token").read_text() == content
    assert token("--token-file=job.token", "--show").stdout == content
    assert token("--new", "another", "--show").stdout != content


def test_the_run_directory_and_the_variable(token, tmp_path):
    assert token("--run-dir", "run").stdout == f"{tmp_path / 'run' / 'token'} (made now)\n"
    assert token(DDPRUN_TOKEN=GOOD).stdout == "DDPRUN_TOKEN\n"
    assert token("--show", DDPRUN_TOKEN=GOOD).stdout == GOOD + "\n"
    assert not (tmp_path / "config" / "ddprun" / "token").read_text().startswith(GOOD)


@pytest.mark.parametrize("text, why", [("secret", "too short"), ("0123456789abcdef" * 2, "pattern"), ("", "is empty")])
def test_a_weak_token_is_refused_and_not_shown(token, tmp_path, text, why):
    (tmp_path / "weak").write_text(text)
    (tmp_path / "weak").chmod(0o600)
    done = token("--token-file", "weak", "--show")
    assert (done.returncode, done.stdout) == (81, "")
    assert why in done.stderr and done.stderr.count("\n") == 1
    assert not text or text not in done.stderr


def test_a_token_that_others_can_read_is_refused_with_the_command_that_helps(token, tmp_path):
    (tmp_path / "job.token").write_text(GOOD)
    (tmp_path / "job.token").chmod(0o644)
    done = token("--token-file", "job.token")
    assert done.returncode == 81 and GOOD not in done.stderr
    subprocess.run(re.search(r"chmod 600 '[^']*'", done.stderr).group(), shell=True, cwd=tmp_path, check=True)
    assert token("--token-file", "job.token").returncode == 0


@pytest.mark.parametrize("args", [["--new"], ["--new", "a", "--run-dir", "b"], ["x"], ["--verbose"]])
def test_a_mistake_is_one_line(token, args):
    done = token(*args)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "usage: ddprun token" in done.stderr


def test_workers_do_not_see_the_token(ddprun_bin, run, tmp_path):
    (tmp_path / "show.sh").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "show.sh").chmod(0o755)
    done = run([ddprun_bin, "--no-python", tmp_path / "show.sh"], DDPRUN_TOKEN=GOOD)
    assert done.returncode == 0, done.stderr
    assert "LOCAL_RANK=0" in done.stdout
    assert "DDPRUN_TOKEN" not in done.stdout and GOOD not in done.stdout


def test_ddprun_starts_without_openssl(ddprun_bin):
    needed = subprocess.run(["readelf", "-d", ddprun_bin], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in needed
    assert "ssl" not in needed and "crypto" not in needed
    assert (ddprun_bin.parent.parent / "lib" / "ddprun" / "libddprun_tls.so").exists()
