"""Tests of scripts that run out of memory. A restarted script must receive the cause of the failure, and how often it has
occurred. If two attempts fail in the same allocation, the job must end."""

import json

RUNS_OUT = 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s.00 GiB. GPU 0 has $$ MiB free." >&2; exit 1'
PRINTS_CAUSE = 'echo "cause $DDPRUN_RESTART_CAUSE/$DDPRUN_OOM_COUNT"; '


def job(ddprun_bin, script, *options):
    return [ddprun_bin, "--standalone", "--max-restarts", 9, "--log-dir", "logs", *options, "--no-python", "sh", "-c", script]


def test_the_same_allocation_failing_twice_ends_with_84(ddprun_bin, run, tmp_path):
    done = run(job(ddprun_bin, PRINTS_CAUSE + RUNS_OUT % 2), DDPRUN_OOM_COUNT="7")
    assert done.returncode == 84, done.stderr
    assert done.stdout.splitlines() == ["cause /", "cause out_of_memory/1"]
    assert "out of memory in two consecutive rounds, with nothing changed between them: use a smaller batch or model, or more memory" in done.stderr
    (report,) = (tmp_path / "logs").glob("*/report.json")
    rounds = json.loads(report.read_text())["rounds"]
    assert [one["first_cause"]["cause"] for one in rounds] == ["out_of_memory"] * 2
    assert rounds[0]["first_cause"]["message"].startswith("torch.OutOfMemoryError")


def test_a_script_that_allocates_less_continues(ddprun_bin, run):
    smaller_request = RUNS_OUT % "$((4 - ${DDPRUN_OOM_COUNT:-0}))"
    done = run(job(ddprun_bin, f'{PRINTS_CAUSE}[ "$DDPRUN_OOM_COUNT" = 3 ] && exit 0; {smaller_request}'))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "cause out_of_memory/3"


def test_another_failure_sets_the_cause_too(ddprun_bin, run):
    done = run(job(ddprun_bin, PRINTS_CAUSE + "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"))
    assert done.stdout.splitlines() == ["cause /", "cause exit_code/0"]
