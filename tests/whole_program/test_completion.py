"""Tests of --print-completion in real shells: the TAB key must complete a typed word. zsh and tcsh are tested only if they are
installed."""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import time

import pytest

PATIENCE = 20  # in seconds


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_names_every_option(ddprun_bin, run, shell):
    done = run([ddprun_bin, "--print-completion", shell])
    assert done.returncode == 0
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z-]+)", run([ddprun_bin, "--help-all"]).stdout, flags=re.MULTILINE))
    assert len(options) > 50
    for option in options:
        assert re.search(rf"(--|[( ]|-l ){option[2:]}\b", done.stdout), option


def test_bash_completes(ddprun_bin, run):
    script = run([ddprun_bin, "--print-completion", "bash"]).stdout

    def complete(*words):
        line = f'{script}\nCOMP_WORDS=(ddprun {" ".join(words)})\nCOMP_CWORD={len(words)}\n_ddprun_complete\necho "${{COMPREPLY[@]}}"'
        return run(["bash", "-c", line]).stdout.split()

    assert complete("--max") == ["--max-restarts"]
    assert complete("--numa-binding", "s") == ["socket"]
    assert complete("--numa-binding", "=", "s") == ["socket"]
    assert complete("--nproc-per-node", "''") == ["auto", "cpu", "gpu", "xpu"]
    assert complete("--nproc-per-node", "=") == ["auto", "cpu", "gpu", "xpu"]
    assert complete("train") == []
    assert complete("val") == ["validate"]
    assert complete("report", "--h") == ["--html"]
    assert complete("report", "--f") == ["--follow"]
    assert complete("train.json", "optimizer.l") == ["optimizer.lr=", "optimizer.lr_batch_rule=", "optimizer.lr_base_batch="]


def test_bash_completes_dev(run):
    root = pathlib.Path(__file__).resolve().parents[2]
    script = run([root / "dev", "completion", "bash"]).stdout

    def complete(*words):
        line = f'{script}\nCOMP_WORDS=(./dev {" ".join(words)})\nCOMP_CWORD={len(words)}\n_ddprun_dev\necho "${{COMPREPLY[@]}}"'
        return run(["bash", "-c", line]).stdout.split()

    assert {"build", "test", "format", "lines", "completion"} <= set(complete("''"))
    assert complete("format", "--") == ["--check"]
    assert complete("build", "as") == ["asan"]
    assert complete("test", "--l") == ["--long"]
    assert "stragglers" in complete("bench", "''")


class Shell:
    """Runs an interactive shell on a pseudo-terminal."""

    def __init__(self, argv: list[str], folder: str):
        self._output = b""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, {"PATH": os.environ["PATH"], "HOME": folder, "TERM": "vt100"})

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def until(self, wanted: str) -> None:
        end = time.monotonic() + PATIENCE
        while wanted.encode() not in self._output:
            assert select.select([self._terminal], [], [], max(0, end - time.monotonic()))[0], f"no '{wanted}' in {self._text!r}"
            self._output += os.read(self._terminal, 4096)
        self._output = b""

    def close(self) -> None:
        os.close(self._terminal)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def test_fish_offers_a_subcommands_own_options(ddprun_bin, run):
    lines = run([ddprun_bin, "--print-completion", "fish"]).stdout.splitlines()
    launchers = [line for line in lines if " -l max-restarts" in line]
    assert launchers and all(" -n 'not contains -- (commandline -opc)[2] " in line for line in launchers), launchers
    assert "complete -c ddprun -n 'contains -- (commandline -opc)[2] link-torchrun' -l force" in lines


SHELLS = {"zsh": ["zsh", "-f", "-i"], "tcsh": ["tcsh", "-f"]}


@pytest.mark.parametrize("name", SHELLS)
def test_a_real_shell_completes(ddprun_bin, run, tmp_path, name):
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    (tmp_path / "completion").write_text(run([ddprun_bin, "--print-completion", name]).stdout, encoding="utf-8")
    shell = Shell(SHELLS[name], str(tmp_path))
    try:
        if name == "zsh":
            shell.type("autoload -Uz compinit && compinit -D -u\n")
        shell.type("source ./completion\necho rea''dy\n")
        shell.until("ready\r\n")
        shell.type("ddprun --max-r\t")
        shell.until("--max-restarts")
        shell.type("3 --numa-binding=so\t")
        shell.until("--numa-binding=socket")
        shell.type(" --log-line-prefix-t\t")
        shell.until("--log-line-prefix-template")
    finally:
        shell.close()
