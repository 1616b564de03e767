# shellcheck shell=bash
# ./dev demo [--no-kill]: trains the smallest config with two workers. Half-way it kills one of them, and at the end it shows that
# no step was lost.

source tools/shared/build.sh

demo_kill_at=700  # step at which rank 1 is killed; the run has 1,407 steps

command_demo() {
  local kills=yes
  case ${1:-} in
    '') ;;
    --no-kill) kills=no ;;
    *) fail "unknown option '$1' of ./dev demo; it takes --no-kill" ;;
  esac
  setup
  build release ddprun ddptrain
  local run_directory code=0
  run_directory=runs/demo-$(date +%Y%m%d-%H%M%S)
  mkdir -p "$run_directory"
  step "Training: build/bin/ddprun --nproc-per-node 2 --run-dir $run_directory configs/fashion-mnist.json"
  if [[ $kills == yes ]]; then
    echo "         Halfway through, one of the two workers is killed with SIGKILL."
    kill_a_worker "$run_directory" &
  fi
  build/bin/ddprun --nproc-per-node 2 --run-dir "$run_directory" configs/fashion-mnist.json || code=$?
  if ((code != 0)); then
    step "The run ended with exit code $code. Its report: build/bin/ddprun report $run_directory"
    return "$code"
  fi
  "$environment/bin/python" - "$run_directory" <<'END'
import json, pathlib, sys

run = pathlib.Path(sys.argv[1])
report = json.loads((run / "report.json").read_text())
lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
steps = [line["step"] for line in lines if line["event"] == "step"]
for before, after in zip(report["rounds"], report["rounds"][1:]):
    cause, regroup = before["first_cause"], after["regroup"]
    if cause and regroup:
        print(f"Rank {cause['rank']} (pid {cause['pid']}) was killed. ddprun replaced it in {regroup['seconds']:.2f} s; rank {regroup['kept'][0]} kept step {regroup['step']:,}.")
repeated = len(steps) - len(set(steps))
print(f"{report['last_step']:,} steps were trained; steps lost: {report['steps_lost'] + repeated}.")
END
  step "Done. $run_directory contains metrics.jsonl, report.json, logs/, checkpoints/ and tensorboard/."
}

# Waits until the run has finished `demo_kill_at` steps, then kills rank 1.
kill_a_worker() {
  local run_directory=$1 pid
  # tail's output is not piped into grep, because the exit status of the pipe would be the status of tail, which SIGPIPE ends.
  grep -q -m 1 "\"event\":\"step\".*\"step\":$demo_kill_at," < <(tail -F -n +1 --pid=$$ "$run_directory/metrics.jsonl" 2>/dev/null) || return 0
  pid=$(build/bin/ddprun status --json "$run_directory" | "$environment/bin/python" -c '
import json, sys
print(next(worker["pid"] for worker in json.load(sys.stdin)["workers"] if worker["rank"] == 1))')
  echo "./dev demo: kill -9 $pid"
  kill -9 "$pid"
}
