"""Tests of file systems and DNS resolvers that do not answer for a while. During this stall no node may lose its lease, no
worker may be restarted, and no line of output may be lost."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import jobs
import pytest
from disks import stalling_disk
from node_agents import lives

LONG = bool(os.environ.get("DDPRUN_LONG_TESTS"))
LEASE = 1.2  # in seconds
STALL = 30 if LONG else 2.5 * LEASE  # length of a stall in seconds; an agent that blocked this long would count as lost
# A worker that prints ten numbered lines per second until $OUT/end exists.
TALKS = """exec 9<> <(:)
echo "$RANK-$TORCHELASTIC_RESTART_COUNT" >> $OUT/started
echo $$ > $OUT/pid-$RANK.new; mv $OUT/pid-$RANK.new $OUT/pid-$RANK
n=0
while [ ! -e "$OUT/end" ]; do
  echo "line $n"; n=$((n + 1))
  read -r -t 0.1 -u 9
done
echo "$n lines"; exit 0"""


@pytest.fixture
def disk(tmp_path):
    with stalling_disk(tmp_path / "disk") as made:
        yield made


class Talkers:
    """Two nodes with one worker each. The workers print lines. All files of the nodes are on a disk that can be frozen."""

    def __init__(self, nodes, script, disk, tmp_path, *options, state_on_disk=True):
        self.nodes, self.disk, self.out = nodes, disk, tmp_path / "out"
        job = script(TALKS)
        job.write_text(job.read_text().replace("#!/bin/sh", "#!/bin/bash"))
        if state_on_disk:
            nodes.environment["XDG_STATE_HOME"] = str(disk.folder / "state")
        self.logs = [disk.folder / f"logs-{node}" for node in range(2)]
        for node in range(2):
            where = "127.0.0.1:0" if node == 0 else self.endpoint
            nodes.start("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", where, "--rdzv-conf", f"heartbeat_timeout={LEASE}", "--tee", 3,
                        "--log-dir", self.logs[node], *options, "--no-python", job)
            if node == 0:
                self.endpoint = nodes.until_printed(0, r"ddprun join (127\.0\.0\.1:\d+)")[1]
        self.until_both_printed(0)

    def printed(self, node: int) -> int:
        return len(re.findall(r"line \d+", self.nodes.text(node)))

    def until_both_printed(self, more: int):
        for node, before in enumerate([self.printed(0), self.printed(1)]):
            self.nodes.until(lambda: self.printed(node) > before + more, f"lines of node {node}")  # noqa: B023

    def started(self) -> list[str]:
        return sorted((self.out / "started").read_text().split())

    def pid(self, rank: int) -> int:
        return int((self.out / f"pid-{rank}").read_text())

    def lines_in_logs(self, restart: int) -> list[list[str]]:
        files = [file for logs in self.logs for file in logs.glob(f"*/attempt_{restart}/*/stdout.log")]
        return [file.read_text().splitlines() for file in sorted(files)]

    def end(self):
        (self.out / "end").touch()
        assert self.nodes.wait() == [0, 0], self.nodes.all_text()


def assert_whole(log: list[str]):
    assert log == [f"line {n}" for n in range(len(log) - 1)] + [f"{len(log) - 1} lines"]


def test_logs_report_and_records_on_a_disk_that_stalls(nodes, script, disk, tmp_path):
    job = Talkers(nodes, script, disk, tmp_path)
    disk.freeze()
    time.sleep(STALL)
    job.until_both_printed(5)  # the console must show new lines during the stall
    disk.thaw()
    job.until_both_printed(5)
    job.end()
    assert job.started() == ["0-0", "1-0"], nodes.all_text()
    logs = job.lines_in_logs(restart=0)
    assert len(logs) == 2
    for log in logs:
        assert_whole(log)


def test_a_worker_is_restarted_while_the_disk_stalls(nodes, script, disk, tmp_path):
    job = Talkers(nodes, script, disk, tmp_path, "--max-restarts", 3, state_on_disk=False)
    disk.freeze()
    victim = job.pid(1)
    os.kill(victim, signal.SIGKILL)
    nodes.until(lambda: len(job.started()) == 4, "both workers again")
    time.sleep(STALL)
    job.until_both_printed(5)
    disk.thaw()
    job.end()
    assert job.started() == ["0-0", "0-1", "1-0", "1-1"], nodes.all_text()
    for log in job.lines_in_logs(restart=1):
        assert_whole(log)


def test_a_stalled_record_delays_the_round_but_not_the_lease(nodes, script, disk, tmp_path):
    """A worker is killed while the disk stalls. The restart must wait, because the nodes cannot record it on disk. But both
    nodes still answer, so no node may be declared lost or search for another coordinator."""
    job = Talkers(nodes, script, disk, tmp_path, "--max-restarts", 3)
    disk.freeze()
    os.kill(job.pid(1), signal.SIGKILL)
    nodes.until(lambda: not lives(job.pid(0)), "the other one being stopped")
    time.sleep(STALL)
    assert job.started() == ["0-0", "1-0"]  # the round cannot start before the restart that it uses is recorded on the disk
    disk.thaw()
    nodes.until(lambda: len(job.started()) == 4, "both workers again")
    job.until_both_printed(5)
    job.end()
    assert job.started() == ["0-0", "0-1", "1-0", "1-1"], nodes.all_text()
    assert not re.search("sent nothing for|no answer from|does not answer|less than a majority|was closed", nodes.all_text()), nodes.all_text()


# Rank 0 prints enough to fill every queue, and then creates $OUT/done. Rank 1 prints ten lines per second until this file
# exists.
FLOODS = """import os, sys
import time
out = os.environ["OUT"]
print("starts", flush=True)
while not os.path.exists(out + "/go"):
    time.sleep(0.05)
if os.environ["RANK"] == "0":
    for n in range(60000):
        print(f"{n:6d} {'x' * 100}")
    open(out + "/done", "w").close()
else:
    n = 0
    while not os.path.exists(out + "/done"):
        print("line", n, flush=True)
        n += 1
        time.sleep(0.1)
"""


def test_only_the_flooding_worker_waits_for_a_stalled_disk(ddprun_bin, disk, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    program = tmp_path / "flood.py"
    program.write_text(FLOODS)
    console = tmp_path / "console"
    with open(console, "wb") as to:
        process = subprocess.Popen([str(ddprun_bin), "--nproc-per-node", "2", "--tee", "3", "--hang-timeout", "2", "--log-dir", str(disk.folder / "logs"),
                                    str(program)], stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT,
                                   env=jobs.clean_environment(OUT=str(out)))
    try:
        named = re.compile(r"rank 0 waits until its output can be written to its log file \(slow or full disk\?\): .*/0/stdout\.log\.")

        def until(found, what):
            end = time.monotonic() + 60
            while not found():
                assert time.monotonic() < end, f"timeout while waiting for {what}: {console.read_text()[-3000:]}"
                time.sleep(0.05)

        until(lambda: console.read_text(errors="replace").count("]:starts") == 2, "both workers")
        disk.freeze()
        (out / "go").touch()
        until(lambda: named.search(console.read_text(errors="replace")), "its being named")
        before = console.read_text(errors="replace").count("]:line ")
        # 25 lines take longer than the hang timeout
        until(lambda: console.read_text(errors="replace").count("]:line ") > before + 25, "lines of the other one")
        assert not (out / "done").exists()
    finally:
        disk.thaw()
        code = process.wait(timeout=60)
    text = console.read_text(errors="replace")
    assert code == 0, text[-3000:]
    assert len(re.findall("waits until its output can be written", text)) == 1
    assert "hangs" not in text
    log = next((disk.folder / "logs").glob("*/attempt_0/0/stdout.log"))
    assert log.read_text().splitlines() == ["starts"] + [f"{n:6d} {'x' * 100}" for n in range(60000)]


def test_a_cause_survives_an_agent_killed_before_writing_it(ddprun_bin, disk, tmp_path):
    """The agent is killed before it can write the cause of a failure to the disk. The guardian has the cause in its memory and
    writes the report."""
    out, run = tmp_path / "out", disk.folder / "run"
    out.mkdir()
    job = tmp_path / "job.sh"
    job.write_text(f'#!/bin/sh\nexec 9<> {out}/fifo\necho $TORCHELASTIC_RESTART_COUNT >> {out}/started\nread go <&9\nexit 17\n')
    job.chmod(0o755)
    os.mkfifo(out / "fifo")
    process = subprocess.Popen([str(ddprun_bin), "--nproc-per-node", "1", "--max-restarts", "2", "--run-dir", str(run), "--no-python", str(job)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=jobs.clean_environment())

    def until(found, what):
        end = time.monotonic() + 60
        while not found():
            assert time.monotonic() < end, f"timeout while waiting for {what}"
            time.sleep(0.02)

    def started():
        return len((out / "started").read_text().split()) if (out / "started").exists() else 0

    def report():
        found = list(run.rglob("report*.json"))
        return json.loads(found[0].read_text()) if found else {}

    until(lambda: started() == 1 and report().get("rounds"), "the first round")
    disk.freeze()
    try:
        with open(out / "fifo", "w") as go:
            go.write("on\n")
        shown = b""
        while b"failed: exit code 17" not in shown:
            line = process.stdout.readline()
            assert line, shown.decode()
            shown += line
        until(lambda: started() == 2, "the restart")
        process.kill()
    finally:
        disk.thaw()
    process.wait(timeout=60)
    process.stdout.close()
    until(lambda: report().get("exit"), "the report's end")
    end = report()
    assert end["exit"] == {"code": 137, "why": "the agent was killed"}
    causes = [round_["first_cause"] for round_ in end["rounds"] if round_["first_cause"]]
    assert [cause["exit_code"] for cause in causes] == [17], end


def test_a_job_waiting_for_its_files_names_one_once(nodes, script, disk, tmp_path):
    job = Talkers(nodes, script, disk, tmp_path)
    disk.freeze()
    (job.out / "end").touch()
    waits = r"the job has ended, but writing to (\S+) is blocked \(slow disk or network file system\?\): ddprun waits until the file is complete, and then exits"
    for node in range(2):
        nodes.until(lambda: re.search(waits, nodes.text(node)), f"node {node} to report what it waits for")  # noqa: B023
    disk.thaw()
    job.end()
    for node in range(2):
        (file,) = re.findall(waits, nodes.text(node))
        assert pathlib.Path(file).is_relative_to(disk.folder)
    for log in job.lines_in_logs(restart=0):
        assert_whole(log)


# ---- workers that hang in a file system ----

# A worker script. Rank 1 writes to the frozen disk. Rank 0 fails when the test creates $OUT/go-0.
HANGS = """echo "$RANK of $WORLD_SIZE" >> $OUT/started
if [ "$WORLD_SIZE" = 1 ]; then exit 0; fi
echo $$ > $OUT/pid-$RANK.new; mv $OUT/pid-$RANK.new $OUT/pid-$RANK
while [ ! -e $OUT/go-$RANK ]; do sleep 0.05; done
if [ "$RANK" = 1 ]; then echo x > $DISK/file; fi
exit 7"""


def state_of(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.parametrize("configured", [pytest.param(True, id="torchelastic's watch"), pytest.param(False, id="by default", marks=pytest.mark.long)])
def test_a_node_with_a_worker_stuck_in_the_kernel_leaves(nodes, script, disk, tmp_path, configured):
    out = tmp_path / "out"
    watch = {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0.5"} if configured else {}
    nodes.environment |= {"DISK": str(disk.folder), **watch}
    job = script(HANGS)
    for node in range(2):
        where = "127.0.0.1:0" if node == 0 else endpoint  # noqa: F821
        nodes.start("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", where, "--rdzv-conf", f"heartbeat_timeout={LEASE}",
                    "--max-restarts", 3, "--shutdown-timeout", 1, job)
        if node == 0:
            endpoint = nodes.until_printed(0, r"ddprun join (127\.0\.0\.1:\d+)")[1]
    nodes.until(lambda: (out / "pid-0").exists() and (out / "pid-1").exists(), "both workers")
    stuck = int((out / "pid-1").read_text())
    disk.freeze()
    (out / "go-1").touch()
    nodes.until(lambda: not lives(stuck) or state_of(stuck) == "D", "rank 1 to hang")
    # By default, a failure of rank 0 causes a restart. But the blocked rank 1 cannot be stopped for this restart.
    if not configured:
        (out / "go-0").touch()
    codes = [agent.wait(timeout=120) for agent in nodes.agents]
    assert lives(stuck) and state_of(stuck) == "D"
    assert codes[0] == 0 and codes[1] in (7, 89), nodes.all_text()
    assert sorted((out / "started").read_text().splitlines()) == ["0 of 1", "0 of 2", "1 of 2"], nodes.all_text()
    assert re.search("cannot be killed", nodes.text(1)), nodes.all_text()
    for node in range(0 if configured else 2):
        shown = re.findall(r"waiting for the workers of \S+ to end; after \d+ s the other nodes continue without them", nodes.text(node))
        assert len(shown) == 1, nodes.all_text()
    disk.thaw()


# ---- resolvers ----

@pytest.fixture
def resolver(tmp_path) -> dict[str, str]:
    """Returns environment variables for a program. With these variables, the DNS resolver of the program stops answering as
    soon as $SILENT_RESOLVER_FILE exists."""
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("needs a C compiler")
    library = tmp_path / "silent_resolver.so"
    source = pathlib.Path(__file__).with_name("silent_resolver.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "SILENT_RESOLVER_FILE": str(tmp_path / "silent")}


def test_the_end_does_not_wait_for_a_silent_resolver(nodes, script, resolver, tmp_path):
    (tmp_path / "silent").touch()
    agent = nodes.start("--nnodes", 2, "--node-rank", 1, "--master-addr", "far-away.test", "--master-port", 29400, "--no-python", script("exit 0"), **resolver)
    nodes.until_printed(0, "looking for the job")
    nodes.until(lambda: any("silent_resolver" in line for line in pathlib.Path(f"/proc/{agent.pid}/maps").read_text().splitlines()), "the library")
    time.sleep(0.5)  # in this time the resolver query is sent
    agent.terminate()
    assert agent.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_restart_does_not_wait_for_a_silent_resolver(make_hosts, script, resolver, tmp_path):
    hosts = make_hosts(2)
    hosts.environment.update(resolver, SILENT_RESOLVER_NAME=f"first.test={hosts.address(0)}")
    job = script(TALKS)
    job.write_text(job.read_text().replace("#!/bin/sh", "#!/bin/bash"))
    out = tmp_path / "out"
    for rank in range(2):
        hosts.start_on(rank, "--nnodes", 2, "--node-rank", rank, "--master-addr", "first.test", "--master-port", 29400, "--max-restarts", 3,
                       "--rdzv-conf", f"heartbeat_timeout={LEASE}", "--no-python", job)

    def started():
        return sorted((out / "started").read_text().split()) if (out / "started").exists() else []

    hosts.until(lambda: (out / "pid-0").exists() and (out / "pid-1").exists(), "both workers")
    (tmp_path / "silent").touch()
    os.kill(int((out / "pid-1").read_text()), signal.SIGKILL)
    hosts.until(lambda: len(started()) >= 4, "both workers again")
    (out / "end").touch()
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert started() == ["0-0", "0-1", "1-0", "1-1"], hosts.all_text()
