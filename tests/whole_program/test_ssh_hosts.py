"""Tests of `ddprun --hosts`. Most tests run with a stand-in for ssh (ssh_hosts.py). The last tests run real sshd processes on
private hosts, and are skipped if OpenSSH is missing."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import jobs
import pytest
from ssh_hosts import FakeSsh

NASTY = ["a b", "it's", '"$HOME"', "x\ny", "", "*", "-n", "\\", "é", "$$;&|<>`id`"]


@pytest.fixture
def ssh(ddprun_bin, tmp_path):
    fake = FakeSsh(ddprun_bin, tmp_path)
    yield fake
    fake.close()


def train_config(ssh, data, **changes) -> pathlib.Path:
    return jobs.write_config(ssh.folder / "train.json", jobs.config(data, **changes))


def test_agents_start_on_all_hosts(ssh, script):
    job = script('echo "$RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $NCCL_DEBUG ${DDPRUN_TOKEN:-none} $PWD" > $OUT/rank-$RANK\n'
                 'for word in "$@"; do printf "%s\\0" "$word"; done > $OUT/words-$RANK\n'
                 'echo "to stdout from $RANK"; echo "to stderr from $RANK" >&2')
    done = ssh.run("--hosts", "a,bob@b:2", job, *[word.replace("$", "$$") for word in NASTY], NCCL_DEBUG="INFO")
    assert done.returncode == 0, done.stderr
    out = ssh.folder / "out"
    for rank, (workers, node) in enumerate([(1, 0), (2, 1), (2, 1)]):
        values = (out / f"rank-{rank}").read_text().split()
        assert values[:4] == [str(rank), "3", str(workers), str(node)]
        assert values[5:] == ["INFO", "none", str(ssh.folder)]
        assert (out / f"words-{rank}").read_bytes() == b"".join(word.encode() + b"\0" for word in NASTY)
    assert "[a] to stdout from 0\n" in done.stdout and "[b] to stdout from 1\n" in done.stdout and "[b] to stdout from 2\n" in done.stdout
    assert "[a] to stderr from 0\n" in done.stderr and "[b] to stderr from 2\n" in done.stderr
    for call in ssh.calls("a") + ssh.calls("b"):
        assert ssh.token not in json.dumps(call)
    assert ssh.calls("b")[0]["arguments"][-2] == "bob@b"
    assert ssh.token not in done.stdout + done.stderr
    ssh.assert_nothing_runs()


def test_one_host_is_a_job_on_one_machine(ssh, script):
    done = ssh.run("--hosts", "a:2", script('printf "$RANK of $WORLD_SIZE\n"; exit 7'))
    assert done.returncode == 7
    assert sorted(done.stdout.splitlines()) == ["0 of 2", "1 of 2"]


def test_startup_files_of_a_shell_may_print(ssh, script):
    done = ssh.run("--hosts", "noisy,a", script('echo "rank $RANK"'))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("[noisy] rank 0") == 1 and "welcome" not in done.stdout + done.stderr


def test_training_on_two_hosts(ssh, data):
    config = train_config(ssh, data)
    alone = jobs.run([ssh.ddprun, "--nproc-per-node", 2, "--run-dir", ssh.folder / "alone", config])
    assert alone.returncode == 0, alone.stderr
    done = ssh.run("--hosts", "a:1,b:1", "--run-dir", ssh.folder / "both", config)
    assert done.returncode == 0, done.stderr
    assert jobs.losses(ssh.folder / "both") == jobs.losses(ssh.folder / "alone")
    assert jobs.weights_digest(ssh.folder / "both") == jobs.weights_digest(ssh.folder / "alone")
    lines = ssh.run("--hosts", "a:1,b:1", "--json", "--run-dir", ssh.folder / "json", config).stdout.splitlines()
    assert {"run_started", "run_ended"} <= {json.loads(line)["event"] for line in lines}


def until_steps(ssh, run_dir: pathlib.Path, steps: int) -> None:
    metrics = run_dir / "metrics.jsonl"
    jobs.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= steps, f"no {steps} steps")


def assert_calm(ssh, data_config: pathlib.Path, run_dir: pathlib.Path) -> None:
    """Checks that the run has the same weights as an undisturbed run on one machine."""
    calm = jobs.run([ssh.ddprun, "--nproc-per-node", 2, "--run-dir", ssh.folder / "calm", data_config])
    assert calm.returncode == 0, calm.stderr
    assert jobs.weights_digest(run_dir) == jobs.weights_digest(ssh.folder / "calm")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_ends_all_agents(ssh, data, number):
    config, run_dir = train_config(ssh, data, epochs=20, checkpoint={"every_steps": 10000}), ssh.folder / "run"
    job = ssh.start("--hosts", "a:1,b:1", "--run-dir", run_dir, config)
    until_steps(ssh, run_dir, 20)
    job.send_signal(number)
    assert job.wait(60) == 85, ssh.text()
    ssh.assert_nothing_runs()
    assert jobs.newest_step(run_dir) >= 20
    if number != signal.SIGTERM:
        return
    resumed = ssh.run("--hosts", "a:1,b:1", "--run-dir", run_dir, config)
    assert resumed.returncode == 0, resumed.stderr
    assert_calm(ssh, config, run_dir)


def test_a_lost_connection_does_not_disturb_the_job(ssh, data):
    config, run_dir = train_config(ssh, data, epochs=40), ssh.folder / "run"
    job = ssh.start("--hosts", "a:1,b:1", "--run-dir", run_dir, config)
    until_steps(ssh, run_dir, 20)
    before = ssh.agents("b")
    ssh.cut("b")
    ssh.until_printed("host b: connected again")
    assert ssh.agents("b") == before
    assert job.wait(120) == 0, ssh.text()
    assert "host b: the connection was lost (ssh ended with exit code 137). The agent continues without it for 120 s" in ssh.text()
    assert jobs.metrics(run_dir, "resume") == []
    ssh.assert_nothing_runs()
    assert_calm(ssh, config, run_dir)


def test_output_of_an_agent_without_a_connection_is_shown_later(ssh, script):
    """Both hosts lose their connections, one after the other."""
    job = script('echo "start of $RANK"; while [ ! -f $OUT/cut ]; do sleep 0.1; done; echo "later from $RANK"; '
                 'touch $OUT/later-$RANK; while [ ! -f $OUT/end ]; do sleep 0.1; done')
    process = ssh.start("--hosts", "a,b", job)
    ssh.until_printed("[b] start of 1")
    (ssh.folder / "down-b").touch()
    ssh.cut("b")
    ssh.until_printed("the connection was lost")
    (ssh.folder / "out" / "cut").touch()
    jobs.wait_for((ssh.folder / "out" / "later-1").exists, "no line of rank 1")
    (ssh.folder / "down-b").unlink()
    ssh.until_printed("[b] later from 1")
    ssh.cut("a")
    ssh.until_printed("host a: connected again")
    (ssh.folder / "out" / "end").touch()
    assert process.wait(60) == 0, ssh.text()


def test_an_agent_without_a_connection_saves_and_ends(ssh, data):
    config, run_dir = train_config(ssh, data, epochs=1000, checkpoint={"every_steps": 100000}), ssh.folder / "run"
    job = ssh.start("--hosts", "a:1,b:1", "--hosts-timeout", "1", "--run-dir", run_dir, config)
    until_steps(ssh, run_dir, 20)
    (ssh.folder / "down-b").touch()
    ssh.cut("b")
    jobs.wait_for(lambda: not ssh.agents("b"), f"the agent still runs\n{ssh.text()}")
    (ssh.folder / "down-b").unlink()
    assert job.wait(60) == 85, ssh.text()
    assert jobs.newest_step(run_dir) >= 20
    ssh.assert_nothing_runs()


def test_the_death_of_the_local_process_ends_the_agents(ssh, data):
    config, run_dir = train_config(ssh, data, epochs=1000, checkpoint={"every_steps": 100000}), ssh.folder / "run"
    job = ssh.start("--hosts", "a:1,b:1", "--hosts-timeout", "1", "--run-dir", run_dir, config)
    until_steps(ssh, run_dir, 20)
    agents = ssh.agents("a") + ssh.agents("b")
    assert len(agents) == 2
    job.kill()
    jobs.wait_for(lambda: not ssh.agents("a") and not ssh.agents("b"), "agents still run")
    assert jobs.newest_step(run_dir) >= 20


@pytest.mark.long
def test_a_silent_connection_counts_as_lost(ssh, script):
    """A suspended local process sends no messages, but its connections stay open. The agents end after 30 s of silence and
    --hosts-timeout. The local process gets the results of the agents when it continues."""
    job = ssh.start("--hosts", "a,b", "--hosts-timeout", "1", script('echo "rank $RANK"; sleep 1000'))
    ssh.until_printed("[b] rank 1")
    os.kill(job.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    jobs.wait_for(lambda: not ssh.agents("a") and not ssh.agents("b"), "agents still run", 90)
    assert time.monotonic() - stopped > 20
    os.kill(job.pid, signal.SIGCONT)
    assert job.wait(60) in (85, 143), ssh.text()
    ssh.assert_nothing_runs()


def test_a_killed_agent_is_replaced(ssh, data):
    config, run_dir = train_config(ssh, data, epochs=30), ssh.folder / "run"
    job = ssh.start("--hosts", "a:1,b:1", "--run-dir", run_dir, config)
    until_steps(ssh, run_dir, 20)
    os.kill(ssh.agents("b")[0], signal.SIGKILL)
    ssh.until_printed("host b: SIGKILL killed its agent; the agent is started again")
    assert job.wait(120) == 0, ssh.text()
    assert_calm(ssh, config, run_dir)


def test_an_agent_that_cannot_start_stops_the_others(ssh, script):
    start = time.monotonic()
    done = ssh.run("--hosts", "a,wrong", script("sleep 100"))
    assert done.returncode == 2, done.stderr
    assert time.monotonic() - start < 60
    assert "[wrong] ddprun: --max-restarts: expected" in done.stderr
    assert "ddprun: host wrong: its agent has ended with exit code 2: the agents on the other hosts are stopped" in done.stderr
    ssh.assert_nothing_runs()


@pytest.mark.parametrize(("hosts", "code", "message"), [
    ("a,unknown", 2, "host unknown: unknown host: expected a name with an address, or a Host of ~/.ssh/config; correct --hosts"),
    ("a,bob@refused", 2, "host refused: the login was refused: expected a key that works without a prompt; use ssh-copy-id bob@refused"),
    ("changed,a", 2, "host changed: the host key is unknown or has changed: run ssh changed once"),
    ("a,absent", 2, "host absent: ddprun was not found: expected "),
    ("a,old", 2, "host old: the ddprun of that host did not start as expected (exit code 2): expected version"),
    ("down,a", 80, "host down: ssh could not connect: ssh: connect to host down port 22: Connection refused"),
    ("a,,b", 2, "--hosts: expected HOST[:N],HOST[:N],... without an empty entry"),
    ("a,b:x", 2, "--hosts: expected HOST:N with a number of workers N from 1 to 4096, but got 'b:x'"),
    ("a,b:2,a:3", 2, "--hosts: the host 'a' occurs twice"),
    ("-oProxyCommand=touch x", 2, "--hosts: expected HOST or HOST:N with the name or address of a machine"),
])
def test_mistakes_have_one_line(ssh, script, hosts, code, message):
    done = ssh.run(f"--hosts={hosts}", script("true"))
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(f"ddprun: {message}") and done.stderr.count("\n") == 1, done.stderr
    ssh.assert_nothing_runs()


def test_ssh_may_be_missing(ssh, script):
    done = ssh.run("--hosts", "a", script("true"), PATH=str(ssh.folder))
    assert done.returncode == 2
    assert done.stderr == "ddprun: --hosts starts agents with ssh, which is not on PATH: install an OpenSSH client\n"


def test_options_of_nodes_are_refused(ssh, script):
    for option in (["--nnodes", "2"], ["--node-rank", "0"], ["--master-addr", "h"]):
        done = ssh.run("--hosts", "a,b", *option, script("true"))
        assert done.returncode == 2
        assert f"--hosts and {option[0]} (flag {option[0]}) exclude each other" in done.stderr


def answer_of_supervisor(ssh, *fields: str) -> str:
    """Returns the messages that a supervisor sends after its greeting if it receives a first message with these fields."""
    content = "".join(field + "\0" for field in fields).encode()
    done = subprocess.run([ssh.ddprun, "supervise-over-ssh"], input=b"i%d\n%s" % (len(content), content), capture_output=True, timeout=60,
                          env=jobs.clean_environment(**ssh.environment), check=False)
    greeting = b"\nddprun agent over ssh\n"
    assert done.stdout.startswith(greeting) and done.stderr == b""
    return done.stdout[len(greeting):].decode()


def test_a_supervisor_refuses_what_cannot_work(ssh):
    version = ssh.run("--version").stdout.split()[1]
    assert re.fullmatch(rf"f\d+\nits ddprun has version {version}, and this machine has version 9.9.9: install the same version on both",
                        answer_of_supervisor(ssh, "9.9.9", "start", "a0", "/", "", "1000", "first"))
    assert "the folder /nonexistent cannot be used: No such file or directory; expected the same working directory on each host" in \
        answer_of_supervisor(ssh, version, "start", "a0", "/nonexistent", "", "1000", "first")
    assert "--interface: expected a network interface" in answer_of_supervisor(ssh, version, "start", "a0", "/", "nowhere7", "1000", "first")
    assert answer_of_supervisor(ssh, version, "attach", "a0", "/", "", "1000", "other") == "u0\n"
    assert answer_of_supervisor(ssh, version, "start", "../x", "/", "", "1000", "first") == ""


def test_a_supervisor_without_a_command_ends_with_its_input(ssh):
    version = ssh.run("--version").stdout.split()[1]
    content = "".join(field + "\0" for field in (version, "start", "a0", "/", "", "1000", "first")).encode()
    process = subprocess.Popen([ssh.ddprun, "supervise-over-ssh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=jobs.clean_environment(**ssh.environment))
    ssh.started.append(process)
    process.stdin.write(b"i%d\n%s" % (len(content), content))
    process.stdin.flush()
    answer = b""
    while answer.count(b"\0") < 2:
        answer += process.stdout.read1()
    assert re.fullmatch(rb"\nddprun agent over ssh\nh\d+\n[0-9a-f.:]+\0\d+\0", answer)
    process.stdin.close()
    assert process.wait(20) == 0


def test_stop_status_and_logs_run_on_the_first_host(ssh, data):
    config, run_dir = train_config(ssh, data, epochs=1000, checkpoint={"every_steps": 100000}), ssh.folder / "run"
    job = ssh.start("--hosts", "a:1,b:1", "--run-dir", run_dir, config)
    until_steps(ssh, run_dir, 20)
    before = len(ssh.calls("a"))
    status = ssh.run("status", "--hosts", "a,b", "run")
    assert status.returncode == 0 and "with 2 workers in all" in status.stdout, status.stderr
    logs = ssh.run("logs", run_dir, "--hosts=a,b", "--tail", "5")
    assert logs.returncode == 0, logs.stderr
    stopped = ssh.run("stop", "--hosts", "a,b", "run")
    assert stopped.returncode == 0, stopped.stderr
    assert job.wait(60) == 85, ssh.text()
    assert len(ssh.calls("a")) == before + 3
    both = ssh.run("stop", "--hosts", "a", "--slurm", "17")
    assert both.returncode == 2 and "--hosts and --slurm exclude each other" in both.stderr


def test_a_closed_console_does_not_end_the_job(ssh, data):
    config, run_dir = train_config(ssh, data), ssh.folder / "run"
    process = subprocess.Popen([ssh.ddprun, "--hosts", "a:1,b:1", "--run-dir", str(run_dir), str(config)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ssh.folder, env=jobs.clean_environment(**ssh.environment))
    ssh.started.append(process)
    process.stdout.close()
    assert process.wait(120) == 0
    assert jobs.newest_step(run_dir) == 40


# ---- real sshd ----

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if os.path.exists("/usr/sbin/sshd") else None)


class SshNetwork:
    """Private hosts with the names node0, node1 and so on. Each host runs an sshd. `ddprun --hosts` runs on the first host."""

    def __init__(self, hosts, folder: pathlib.Path):
        self.hosts, self.folder = hosts, folder
        self.daemons: list[subprocess.Popen] = []
        self.runtimes: list[str] = []
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # sshd needs this folder
        folder.mkdir()
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        config = f"IdentityFile {folder}/user_key\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known_hosts\nGlobalKnownHostsFile none\n"
        for host in range(hosts.count):
            self.start_daemon(host)
            config += f"Host node{host}\n HostName {hosts.address(host)}\n Port 2222\n HostKeyAlias all\n"
        (folder / "config").write_text(config)
        (folder / "known_hosts").write_text("all " + (folder / "host_key.pub").read_text())
        (folder / "bin").mkdir()
        client = folder / "bin" / "ssh"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
        client.chmod(0o755)
        self.environment = {**hosts.environment, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def start_daemon(self, host: int) -> None:
        runtime = tempfile.mkdtemp(prefix="ddprun-ssh-")  # pytest's folders are too long for the path of a socket
        self.runtimes.append(runtime)
        variables = (f"XDG_RUNTIME_DIR={runtime} XDG_STATE_HOME={self.folder}/state-{host} XDG_CONFIG_HOME={self.folder}/config-{host} "
                     f"TMPDIR={self.folder} OMP_NUM_THREADS=1")
        (self.folder / f"sshd-{host}").write_text(
            f"Port 2222\nListenAddress {self.hosts.address(host)}\nHostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized_keys\n"
            f"StrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nSetEnv {variables}\n")
        log = (self.folder / f"sshd-{host}.log").open("wb")
        self.daemons.append(subprocess.Popen(self.hosts.on(host, [SSHD, "-D", "-e", "-f", str(self.folder / f"sshd-{host}")]),
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        jobs.wait_for(lambda: "Server listening" in (self.folder / f"sshd-{host}.log").read_text(), f"no sshd on host {host}")

    def start(self, *words) -> subprocess.Popen:
        output = (self.folder / "output.log").open("wb")
        self.hosts.agents.append(subprocess.Popen(self.hosts.on(0, [str(self.hosts.ddprun), "--token-file", str(self.hosts.token), *map(str, words)]),
                                                  stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.hosts.folder,
                                                  env=self.environment))
        return self.hosts.agents[-1]

    def text(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")

    def close(self) -> None:
        for daemon in self.daemons:
            for pid in [*jobs.children(daemon.pid), daemon.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            daemon.wait()
        for runtime in self.runtimes:
            shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture
def network(make_hosts, tmp_path):
    if not SSHD or not shutil.which("ssh-keygen"):
        pytest.skip("needs sshd, ssh and ssh-keygen (Debian: openssh-server)")
    network = SshNetwork(make_hosts(4), tmp_path / "ssh")
    yield network
    network.close()


def test_real_ssh_with_four_hosts(network, data, ddprun_bin, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=8))
    run_dir = tmp_path / "run"
    job = network.start("--hosts", "node0:1,node1:1,node2:1,node3:1", "--run-dir", run_dir, config)
    jobs.wait_for(lambda: (run_dir / "metrics.jsonl").exists() and len(jobs.metrics(run_dir, "step")) >= 20, "no steps")
    clients = [pid for pid in jobs.children(job.pid) if b"node2" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(clients) == 1
    assert (tmp_path / "token").read_text().strip().encode() not in pathlib.Path(f"/proc/{clients[0]}/cmdline").read_bytes()
    os.kill(clients[0], signal.SIGKILL)
    jobs.wait_for(lambda: "host node2: connected again" in network.text(), f"no second connection\n{network.text()}")
    assert job.wait(240) == 0, network.text()
    assert jobs.metrics(run_dir, "resume") == []
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 4, "--run-dir", tmp_path / "calm", config])
    assert calm.returncode == 0, calm.stderr
    assert jobs.weights_digest(run_dir) == jobs.weights_digest(tmp_path / "calm")


def test_real_ssh_stops_and_refuses(network, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=1000, checkpoint={"every_steps": 100000}))
    run_dir = tmp_path / "run"
    job = network.start("--hosts", "node1:1,node2:1", "--run-dir", run_dir, config)
    jobs.wait_for(lambda: (run_dir / "metrics.jsonl").exists() and len(jobs.metrics(run_dir, "step")) >= 20, f"no steps\n{network.text()}")
    stop = subprocess.run(network.hosts.on(0, [str(network.hosts.ddprun), "stop", "--hosts", "node1,node2", str(run_dir)]), env=network.environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    assert stop.returncode == 0, stop.stderr
    assert job.wait(60) == 85, network.text()
    assert jobs.newest_step(run_dir) >= 20
    (network.folder / "authorized_keys").write_text("")
    job = network.start("--hosts", "node1,node2", config)
    assert job.wait(60) == 2
    assert "the login was refused: expected a key that works without a prompt" in network.text()
    (network.folder / "known_hosts").write_text("")
    job = network.start("--hosts", "node1,node2", config)
    assert job.wait(60) == 2
    assert "the host key is unknown or has changed: run ssh node" in network.text()
