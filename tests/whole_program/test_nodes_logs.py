"""Tests of the commands that show and follow the log files of the workers of a multi-node job. The commands work on any node
of the job."""

import json
import time

import pytest
from test_node_queries import start_two

TALKS = """
echo "first $RANK of $TORCHELASTIC_RESTART_COUNT"; echo "error $RANK" >&2
touch $OUT/here-$RANK
trap "exit 0" TERM
while [ ! -e $OUT/go ]; do
  [ "$TORCHELASTIC_RESTART_COUNT$RANK" = 02 ] && [ -e $OUT/fail ] && exit 3
  sleep 0.1
done
echo "end $RANK"
while :; do sleep 0.1; done
"""


def options_of(where, tmp_path):
    if where == "shared run directory":
        return lambda node: ("--run-dir", tmp_path / "run")
    return lambda node: ("--tee", 3, "--log-dir", tmp_path / f"logs-{node}")


@pytest.mark.parametrize("where", ["torchrun's folders", "shared run directory"])
def test_logs_of_all_ranks_from_either_node(nodes, script, tmp_path, where):
    two = start_two(nodes, script(TALKS), tmp_path, options=options_of(where, tmp_path))
    lines = [f"[rank {rank}] {word}" for rank in range(3) for word in (f"first {rank} of 0", f"error {rank}")]
    for node in (0, 1):
        assert two.query(node, "logs").splitlines() == lines
        assert two.query(node, "logs", "--stderr", "--tail", 1).splitlines() == lines[1::2]
        assert two.query(node, "logs", "--rank", 0) == "first 0 of 0\nerror 0\n"
        assert two.query(node, "logs", "--rank", 2) == "first 2 of 0\nerror 2\n"
        assert "that job has no rank 3" in two.query(node, "logs", "--rank", 3, code=2)
    if where == "torchrun's folders":
        assert two.query(1, "logs", "--here").splitlines() == lines[2:]
    assert "has ended" in two.query(1, "stop")
    nodes.wait()


def test_logs_are_followed_over_a_restart_on_a_member_node(nodes, script, tmp_path):
    two = start_two(nodes, script(TALKS), tmp_path,
                    options=lambda node: ("--max-restarts", 1, "--run-dir", tmp_path / f"run-of-{node}"))
    with two.followed(1) as all_ranks, two.followed(1, "--rank", 0) as first:
        seen = [all_ranks.stdout.readline() for _ in range(6)]
        assert set(seen) == {f"[rank {rank}] {word} {rank}{of}\n" for rank in range(3) for word, of in (("first", " of 0"), ("error", ""))}
        assert {first.stdout.readline(), first.stdout.readline()} == {"first 0 of 0\n", "error 0\n"}
        (tmp_path / "out/fail").write_text("")
        # The lines of stderr and stdout may arrive in any order, so the test waits for each kind of line separately.
        for line, times in (("first {} of 1", 1), ("error {}", 2), ("end {}", 1)):
            if line == "end {}":
                (tmp_path / "out/go").write_text("")
            while not all(seen.count(f"[rank {rank}] {line.format(rank)}\n") == times for rank in range(3)):
                seen.append(all_ranks.stdout.readline())
                assert seen[-1]
        received = []
        while not {"error 0\n", "end 0\n"} <= set(received):
            received.append(first.stdout.readline())
            assert received[-1]
        assert "first 0 of 1\n" in received
        assert "has ended" in two.query(0, "stop")
        last = all_ranks.stdout.read() + first.stdout.read()
        # The shell may print "Terminated" when its `sleep` is killed.
        assert set(last.split()) <= {"[rank", "0]", "1]", "2]", "Terminated"}, last
        assert all_ranks.wait() == first.wait() == 0
    nodes.wait()


def test_a_flood_of_lines_does_not_disturb_the_job(nodes, script, tmp_path):
    """The worker writes 80 MB in a second or two, while the lease is only one second."""
    floods = "[ $RANK = 0 ] && echo 0; touch $OUT/here-$RANK; while [ ! -e $OUT/go ]; do sleep 0.1; done; [ $RANK = 0 ] && seq 10000000; touch $OUT/done-$RANK; while :; do sleep 0.1; done"
    two = start_two(nodes, script(floods), tmp_path, conf="heartbeat_timeout=1",
                    options=lambda node: ("--max-restarts", 1, "--redirects", 3, "--log-dir", tmp_path / f"logs-{node}"))
    with two.followed(1) as read, two.followed(1, "--rank", 0) as unread:
        assert read.stdout.readline() == "[rank 0] 0\n"
        (tmp_path / "out/go").write_text("")
        for number in range(1, 100_000):
            assert read.stdout.readline() == f"[rank 0] {number}\n"
        nodes.until(lambda: (tmp_path / "out/done-0").exists(), "the end of the flood")
        started = time.monotonic()
        status = json.loads(two.query(1, "status", "--json"))
        assert time.monotonic() - started < 2
        assert (status["job"]["answered"], status["job"]["of"], status["round"], status["restart_count"]) == (2, 2, 0, 0)
        for follower in (read, unread):
            follower.kill()
            follower.stdout.read()
    assert "has ended" in two.query(0, "stop", "--now")
    nodes.wait()
    assert "lost" not in nodes.all_text(), nodes.all_text()
