"""Two stand-ins for the hosts of `ddprun --hosts`.

FakeSsh is a program named ssh, first on PATH, that runs the command on this machine with `sh -c`. It has no network and no
keys, so it can test everything except ssh itself. test_ssh_hosts.py tests real sshd processes on private hosts."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import jobs
from node_agents import keep_records

PROGRAM = """#!{python}
import json, os, pathlib, subprocess, sys
folder = pathlib.Path({folder!r})
target, command = sys.argv[-2:]
host = target.rpartition("@")[2]
number = len(list(folder.glob(f"call-{{host}}-*")))
call = {{"pid": os.getpid(), "arguments": sys.argv, "environment": dict(os.environ)}}
(folder / f"tmp-{{host}}").write_text(json.dumps(call))
os.rename(folder / f"tmp-{{host}}", folder / f"call-{{host}}-{{number}}")
failures = {{
    "unknown": "ssh: Could not resolve hostname unknown: Name or service not known",
    "refused": "bob@refused: Permission denied (publickey).",
    "changed": "Host key verification failed.",
    "down": "ssh: connect to host down port 22: Connection refused",
}}
if host in failures or (folder / f"down-{{host}}").exists():
    print(failures.get(host, failures["down"]), file=sys.stderr)
    sys.exit(255)
environment = {{"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "runtime"), "TMPDIR": {folder!r},
               "XDG_STATE_HOME": str(folder / f"state-{{host}}"), "SSH_CONNECTION": "127.0.0.1 5 127.0.0.1 22", "FAKE_HOST": host}}
if host == "absent":
    command = command.replace({program!r}, "/nonexistent/ddprun")
if host == "noisy":
    command = "echo welcome to this host; echo o5; " + command
if host == "old":
    command = "echo 'ddprun: supervise-over-ssh does not exist' >&2; exit 2"
if host == "wrong":
    environment["DDPRUN_MAX_RESTARTS"] = "many"
process = subprocess.Popen(["sh", "-c", command], env=environment, start_new_session=True)
sys.exit(process.wait())
"""


class FakeSsh:
    """The program, and the jobs that were started with it."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path, hosts=("a", "b", "c")):
        self.ddprun, self.folder = ddprun, folder
        for host in hosts:
            keep_records(folder / f"state-{host}")
        (folder / "runtime").mkdir(mode=0o700)
        (folder / "bin").mkdir()
        program = folder / "bin" / "ssh"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder), program=str(ddprun)))
        program.chmod(0o755)
        self.token = os.urandom(32).hex()
        self.environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "DDPRUN_TOKEN": self.token, "XDG_RUNTIME_DIR": str(folder / "runtime"),
                            "TMPDIR": str(folder)}
        self.started: list[subprocess.Popen] = []

    def run(self, *args, timeout: float = 120, **env: str) -> subprocess.CompletedProcess:
        return jobs.run([self.ddprun, *args], timeout=timeout, cwd=self.folder, **{**self.environment, **env})

    def start(self, *args, **env: str) -> subprocess.Popen:
        """Starts `ddprun` with its output in the file output.log."""
        with open(self.folder / "output.log", "wb") as output:
            self.started.append(subprocess.Popen([str(a) for a in (self.ddprun, *args)], stdin=subprocess.DEVNULL, stdout=output,
                                                 stderr=subprocess.STDOUT, cwd=self.folder,
                                                 env=jobs.clean_environment(**{**self.environment, **env})))
        return self.started[-1]

    def text(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")

    def until_printed(self, text: str) -> None:
        jobs.wait_for(lambda: text in self.text(), f"no '{text}' in the output")

    def calls(self, host: str) -> list[dict]:
        """Returns the calls of ssh for a host: its pid, arguments and environment."""
        count = len(list(self.folder.glob(f"call-{host}-*")))
        return [json.loads((self.folder / f"call-{host}-{n}").read_text()) for n in range(count)]

    def cut(self, host: str) -> None:
        """Breaks the newest connection to a host."""
        os.kill(self.calls(host)[-1]["pid"], signal.SIGKILL)

    def processes(self) -> list[int]:
        """Returns the pids of all processes on the stand-ins for hosts: supervisors, agents and workers."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and f"XDG_STATE_HOME={self.folder}/state-".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def agents(self, host: str) -> list[int]:
        """Returns the pids of the agents of a host, without their guardians."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
                is_supervised = b"supervise-over-ssh" in pathlib.Path(f"/proc/{parent}/cmdline").read_bytes()
                if f"FAKE_HOST={host}".encode() in variables and is_supervised and b"supervise-over-ssh" not in words:
                    found.append(pid)
        return found

    def assert_nothing_runs(self) -> None:
        jobs.wait_for(lambda: self.processes() == [], "a process on a host still runs", 20)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
