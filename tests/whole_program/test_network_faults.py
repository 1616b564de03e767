"""Network faults on private hosts: partitions, lost packets, silent and returning nodes, spares, misleading host names, IPv6, a second interface, and
strangers that flood the coordinator. The times of the fault table are checked only in the long run, on an otherwise idle machine."""

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from node_agents import LINE, PATIENCE, said

# A worker that writes when it was alive and in which round, until $OUT/end exists. Under c10d each round has a different MASTER_PORT.
TRACE = """exec 9<> <(:)
trace=$OUT/trace-$HOST-$$
while [ ! -e "$OUT/end" ]; do
  echo "$EPOCHREALTIME $MASTER_ADDR:$MASTER_PORT $WORLD_SIZE $RANK $TORCHELASTIC_RESTART_COUNT" >> "$trace"
  read -r -t 0.02 -u 9
done
exit 0"""
FLOOD = pathlib.Path(__file__).resolve().parents[2] / "bench" / "flood.py"
STRICT = bool(os.environ.get("DDPRUN_LONG_TESTS"))


def elastic(hosts, least: int, most: int, *options, conf: str = "heartbeat_timeout=2,last_call_timeout=0.3") -> list:
    return ["--nnodes", f"{least}:{most}", "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.endpoint(0), "--rdzv-conf", conf, *options]


class Traces:
    """The lines that traced workers wrote."""

    def __init__(self, hosts, script, tmp_path):
        self.hosts, self.out = hosts, tmp_path / "out"
        self.job = script(TRACE)
        self.job.write_text(self.job.read_text().replace("#!/bin/sh", "#!/bin/bash"))

    def start_all(self, command: list):
        """Starts an agent on each host; host 0 coordinates the job."""
        for host in range(self.hosts.count):
            self.hosts.start_on(host, *command)
            self.hosts.until_said(0, "coordinates the job")

    def entries(self) -> list[tuple[float, str, int, int, int]]:
        found = []
        for path in self.out.glob("trace-*"):
            for line in path.read_text().splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and len(words) == 5:
                    found.append((float(words[0]), words[1], *map(int, words[2:])))
        return sorted(found)

    def until_world(self, size: int, since: float) -> float:
        """The time at which all ranks of a world of that size, begun after `since`, had written."""

        def there():
            worlds = collections.defaultdict(dict)
            begun = {}
            for when, world, of, rank, _ in self.entries():
                begun.setdefault(world, when)
                if of == size and begun[world] > since:
                    worlds[world].setdefault(rank, when)
            return next((max(ranks.values()) for ranks in worlds.values() if len(ranks) == size), None)

        return self.hosts.until(there, f"a world of {size}")

    def end(self):
        (self.out / "end").touch()

    def assert_one_round_at_a_time(self):
        """No worker of a round lives when the first worker of a later round has begun."""
        spans: dict[str, list[float]] = {}
        for when, world, *_ in self.entries():
            span = spans.setdefault(world, [when, when])
            span[1] = when
        ordered = sorted(spans.items(), key=lambda item: item[1][0])
        for (world, span), (later, next_span) in zip(ordered, ordered[1:]):
            assert span[1] < next_span[0], f"{world} was alive {span[1] - next_span[0]:.3f} s into {later}"

    def restarts(self) -> set[int]:
        return {entry[4] for entry in self.entries()}


@pytest.fixture
def traces(make_hosts, script, tmp_path):
    return lambda count: Traces(make_hosts(count), script, tmp_path)


def both_ways(*pairs):
    return [way for a, b in pairs for way in ((a, b), (b, a))]


PARTITIONS = {
    "halves": (both_ways((0, 2), (0, 3), (1, 2), (1, 3)), 2),
    "the first node alone": (both_ways((0, 1), (0, 2), (0, 3)), 3),
    "to the first node": ([(3, 0)], 3),
    "from the first node": ([(0, 3)], 3),
    "two that do not hear each other": (both_ways((2, 3)), None),  # both nodes still receive from the coordinator, so nothing happens
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_one_side_goes_on_and_the_other_comes_back(traces, name):
    ways, left = PARTITIONS[name]
    trace = traces(4)
    hosts = trace.hosts
    trace.start_all(elastic(hosts, 2, 4, trace.job))
    trace.until_world(4, 0)
    cut = time.time()
    hosts.cut(*ways)
    if left is not None:
        since = trace.until_world(left, cut)
        hosts.drop()
        trace.until_world(4, since)
    trace.end()
    assert hosts.wait() == [0] * 4, hosts.all_text()
    trace.assert_one_round_at_a_time()
    assert trace.restarts() == {0}  # no worker failed, so no restart was counted


def test_a_fifth_of_all_packets_lost(traces, script, tmp_path):
    trace = traces(3)
    hosts = trace.hosts
    hosts.drop("numgen random mod 100 < 20")
    job = script(f"{LINE}; [ $RANK$TORCHELASTIC_RESTART_COUNT != 10 ] || exit 3; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000")
    for host in range(3):
        hosts.start_on(host, *elastic(hosts, 3, 3, "--max-restarts", 1, job, conf="heartbeat_timeout=5"))
    assert hosts.wait() == [0] * 3, hosts.all_text()
    assert [said(tmp_path, rank, 1)[2] for rank in range(3)] == ["3"] * 3


def test_a_longer_lease_bears_a_network_that_is_away_for_longer(traces):
    """TCP itself also gives up later. With a fixed limit of 5 s, a longer heartbeat_timeout had no effect."""
    trace = traces(2)
    hosts = trace.hosts
    trace.start_all(elastic(hosts, 2, 2, trace.job, conf="heartbeat_timeout=15"))
    trace.until_world(2, 0)
    hosts.cut((0, 1), (1, 0))
    time.sleep(6)  # what is tried
    hosts.drop()
    came_back = time.time()
    hosts.until(lambda: max(entry[0] for entry in trace.entries()) > came_back + 1, "the workers to go on")
    trace.end()
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert len({entry[1] for entry in trace.entries()}) == 1, hosts.all_text()
    assert "was not heard of" not in hosts.all_text() and "closed its connection" not in hosts.all_text()


def test_a_node_whose_packets_are_lost_says_so_and_goes_on_trying(traces, script):
    hosts = traces(2).hosts
    command = elastic(hosts, 2, 2, script("true"))  # with a lease that is shorter than the time limit of a call
    hosts.start_on(0, *command)
    hosts.until_said(0, "coordinates the job")
    hosts.cut((0, 1), (1, 0))
    hosts.start_on(1, *command)
    hosts.until_said(1, r"(no answer from|Host is unreachable|No route to host).* Still trying")
    hosts.drop()
    assert hosts.wait() == [0, 0], hosts.all_text()


def kill(hosts, host: int):
    hosts.agents[host].send_signal(signal.SIGKILL)


def freeze(hosts, host: int):
    hosts.agents[host].send_signal(signal.SIGSTOP)


def unplug(hosts, host: int):
    hosts.cable(host, "down")


@pytest.mark.parametrize(("fault", "host", "within"), [(kill, 2, 1), (kill, 0, 7), (freeze, 2, 6), (freeze, 0, 7), (unplug, 2, 6), (unplug, 0, 7)],
                         ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_others_go_on_in_the_time_of_the_fault_table(traces, fault, host, within):
    trace = traces(3)
    hosts = trace.hosts
    conf = {"conf": "last_call_timeout=0.3"} if STRICT else {}  # the default lease of 5 s
    trace.start_all(elastic(hosts, 2, 3, trace.job, **conf))
    trace.until_world(3, 0)
    begin = time.time()
    fault(hosts, host)
    took = trace.until_world(2, begin) - begin
    trace.end()
    left = [number for number in range(3) if number != host]
    assert [hosts.agents[number].wait(PATIENCE) for number in left] == [0, 0], hosts.all_text()
    trace.assert_one_round_at_a_time()
    assert not STRICT or took <= within, f"{took:.2f} s"


def test_a_node_that_was_killed_comes_back_and_one_that_flaps_is_set_aside(traces):
    trace = traces(3)
    hosts = trace.hosts
    command = elastic(hosts, 2, 3, trace.job)
    trace.start_all(command)
    since = trace.until_world(3, 0)
    for lost in range(4):
        hosts.agents[-1].kill()
        hosts.agents[-1].wait()
        since = trace.until_world(2, since)
        hosts.start_on(2, *command)
        if lost < 3:
            since = trace.until_world(3, since)
    hosts.until_said(0, "set aside for 30 s")
    trace.end()
    assert [hosts.agents[n].wait(PATIENCE) for n in (0, 1)] == [0, 0], hosts.all_text()
    trace.assert_one_round_at_a_time()
    assert trace.restarts() == {0}


def test_a_spare_steps_in(traces):
    trace = traces(3)
    hosts = trace.hosts
    command = elastic(hosts, 2, 2, trace.job)
    for host in range(2):
        hosts.start_on(host, *command)
    since = trace.until_world(2, 0)
    hosts.start_on(2, *command)
    hosts.until_said(2, "joined the job")
    lost = next(n for n in range(2) if "coordinates the job" not in hosts.text(n))
    hosts.agents[lost].kill()
    hosts.agents[lost].wait()
    trace.until_world(2, since)
    trace.end()
    assert [hosts.agents[n].wait(PATIENCE) for n in (1 - lost, 2)] == [0, 0], hosts.all_text()
    trace.assert_one_round_at_a_time()


def test_ipv6_only(make_hosts, script, tmp_path):
    hosts = make_hosts(2, 6)
    job = script(LINE + '; echo "$MASTER_ADDR" > $OUT/master-$RANK')
    for host in range(2):
        hosts.start_on(host, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.endpoint(0), job)
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert {(tmp_path / "out" / f"master-{r}").read_text() for r in range(2)} == {"fd77::10\n"}


MEET = f"""import os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent)!r})
import tcp_store
store = tcp_store.Store()
store.set("of " + os.environ["RANK"], "here")
store.wait("of 0", "of 1")
"""


@pytest.mark.parametrize("first", [0, 1])
def test_a_machine_whose_own_name_is_127_0_1_1(make_hosts, tmp_path, first):
    """Debian's /etc/hosts maps a machine's own name to that address, under which no other node could reach rank 0."""
    hosts = make_hosts(2)
    (tmp_path / "job.py").write_text(MEET)
    for host in (first, 1 - first):
        names = {f"host{other}": "127.0.1.1" if other == host else hosts.address(other) for other in range(2)}
        hosts.start_on(host, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "host0:29400", tmp_path / "job.py",
                       names={"localhost": "127.0.0.1"} | names)
    assert hosts.wait() == [0, 0], hosts.all_text()


def test_a_name_that_has_an_address_only_later_is_waited_for(make_hosts, script):
    """A pod's name behind a headless service has no address at first."""
    hosts = make_hosts(2)
    common = ["--nnodes", "2", "--master-port", "29400", "--rdzv-conf", "heartbeat_timeout=2"]
    names = {"localhost": "127.0.0.1", "host0": hosts.address(0), "host1": hosts.address(1)}
    hosts.start_on(1, *common, "--node-rank", "1", "--master-addr", "first.test", script("true"), names=names)
    hosts.until_said(0, "first.test has no address.*Still trying, for 600 s")
    hosts.start_on(0, *common, "--node-rank", "0", "--master-addr", "first.test", script("true"), names=names | {"first.test": hosts.address(0)})
    hosts.until_said(1, "coordinates the job")
    with open(hosts.etc_hosts(1), "a") as known:
        known.write(f"{hosts.address(0)} first.test\n")
    assert hosts.wait() == [0, 0], hosts.all_text()


def test_the_address_at_which_the_nodes_meet_and_not_the_first_one(make_hosts, script, tmp_path):
    hosts = make_hosts(2)
    for host in range(2):  # a container network, for example: every machine has the same address on it, and no other node is reachable through it
        subprocess.run(["ip", "-n", hosts.space(host), "link", "add", "aaa0", "type", "bridge"], check=True)
        subprocess.run(["ip", "-n", hosts.space(host), "link", "set", "aaa0", "up"], check=True)
        hosts.add_address(host, "172.17.0.1", "aaa0")
    job = script(LINE + '; echo "$MASTER_ADDR" > $OUT/master-$RANK')
    for host in range(2):
        hosts.start_on(host, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.endpoint(0), job,
                       names={"localhost": "127.0.0.1", f"host{host}": "172.17.0.1"})
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert {(tmp_path / "out" / f"master-{r}").read_text() for r in range(2)} == {"10.77.0.10\n"}


def test_strangers_do_not_disturb_a_job(traces, script, tmp_path):
    trace = traces(3)
    hosts = trace.hosts
    job = script(f"{LINE}; [ $TORCHELASTIC_RESTART_COUNT = 3 ] && exit 0; [ $RANK = 1 ] && sleep 1 && exit 5; sleep 1000")
    command = elastic(hosts, 2, 2, "--max-restarts", 3, job)
    hosts.start_on(0, *command)
    hosts.until_said(0, "coordinates the job")
    flood = subprocess.Popen(hosts.on(2, [sys.executable, str(FLOOD), hosts.address(0), "29400", "60"]), stdout=subprocess.PIPE)
    try:
        hosts.until(lambda: "refus" in hosts.text(0), "a line about the strangers")
        hosts.start_on(1, *command)
        memory = 0
        while hosts.agents[0].poll() is None:
            status = pathlib.Path(f"/proc/{hosts.agents[0].pid}/status")
            memory = max(memory, int((re.search(r"VmHWM:\s+(\d+)", status.read_text()) or [0, 0])[1]))
            time.sleep(0.02)
        assert hosts.wait() == [0, 0], hosts.all_text()
    finally:
        flood.kill()
        flood.wait()
    assert said(tmp_path, 0, 3)[2] == "2"
    assert memory < 64 * 1024, f"{memory} KB"
    assert len(hosts.text(0).splitlines()) < 100, hosts.text(0)  # refusals of strangers are reported together, at intervals


@pytest.mark.long
def test_a_first_node_that_comes_back_cut_off_trains_nothing_beside_the_others(hosts, script, tmp_path):
    """With MIN 1 the node is enough for a round by itself. A timer of 10 s once made it forget the job in which the others train."""
    job = script(f'{LINE}; while [ ! -e {tmp_path}/enough ]; do sleep 0.1; done')
    command = elastic(hosts, 1, 3, job)
    for host in range(3):
        hosts.start_on(host, *command)
        hosts.until_said(0, "coordinates the job")
    hosts.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() for r in range(3)), "three workers")
    hosts.cable(0, "down")
    hosts.agents[0].kill()
    hosts.agents[0].wait()
    hosts.until(lambda: said(tmp_path, 0)[2] == "2" or None, "the two others at work")
    hosts.start_on(0, *command)
    hosts.until_said(3, "an earlier start of this job had 3, and may still run on those that are not here|begins with 1 node|1 node, 1 worker")
    assert "1 node" not in hosts.text(3), hosts.text(3)
    hosts.cable(0, "up")
    hosts.until(lambda: said(tmp_path, 0)[2] == "3" or None, "all three at work again")
    (tmp_path / "enough").touch()
    assert [hosts.agents[n].wait(PATIENCE) for n in (1, 2, 3)] == [0, 0, 0], hosts.all_text()
