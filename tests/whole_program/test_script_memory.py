"""A script that runs out of memory: the information that it gets at its restart, and the limit on identical attempts."""

import json

ASKS = 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s.00 GiB. GPU 0 has $$ MiB free." >&2; exit 1'
TOLD = 'echo "told $DDPRUN_RESTART_CAUSE/$DDPRUN_OOM_COUNT"; '


def job(ddprun_bin, script, *options):
    return [ddprun_bin, "--standalone", "--max-restarts", 9, "--log-dir", "logs", *options, "--no-python", "sh", "-c", script]


def test_the_same_memory_wanted_twice_ends_with_84_and_a_hint(ddprun_bin, run, tmp_path):
    done = run(job(ddprun_bin, TOLD + ASKS % 2), DDPRUN_OOM_COUNT="7")
    assert done.returncode == 84, done.stderr
    assert done.stdout.splitlines() == ["told /", "told out_of_memory/1"]
    assert "out of memory in two rounds in a row, and nothing has changed: a smaller batch or model, or more memory" in done.stderr
    (report,) = (tmp_path / "logs").glob("*/report.json")
    rounds = json.loads(report.read_text())["rounds"]
    assert [one["first_cause"]["cause"] for one in rounds] == ["out_of_memory"] * 2
    assert rounds[0]["first_cause"]["message"].startswith("torch.OutOfMemoryError")


def test_a_script_that_asks_for_less_after_each_failure_goes_on(ddprun_bin, run):
    asks_for_less = ASKS % "$((4 - ${DDPRUN_OOM_COUNT:-0}))"
    done = run(job(ddprun_bin, f'{TOLD}[ "$DDPRUN_OOM_COUNT" = 3 ] && exit 0; {asks_for_less}'))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "told out_of_memory/3"


def test_another_failure_is_told_as_well(ddprun_bin, run):
    done = run(job(ddprun_bin, TOLD + "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"))
    assert done.stdout.splitlines() == ["told /", "told exit_code/0"]
