"""Side-by-side benchmarks: ddprun and ddptrain against torchrun and Python's DistributedDataParallel, in one run.

`./dev bench [what ...]` starts this program. The speed of a machine changes over time, so the programs run alternately and
repeatedly. Every value is a median, with the smallest and largest value. Results go to bench/results/*.json, which is not in
git. --docs also writes the tables to docs/benchmarks.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import sys

import before_bench
import checkpoint_bench
import launch_bench
import measure
import recovery_bench
import rendezvous_bench
import samples_bench
import soak_bench
import spares_bench
import straggler_bench
import training_bench

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUITES = {"launch": launch_bench.run, "training": training_bench.run, "samples": samples_bench.run, "checkpoint": checkpoint_bench.run,
          "recovery": recovery_bench.run, "rendezvous": rendezvous_bench.run, "soak": soak_bench.run,
          "spares": spares_bench.run, "stragglers": straggler_bench.run, "before": before_bench.run}
BY_NAME_ONLY = {"soak", "stragglers", "before"}  # soak and stragglers take long, and before needs an earlier build


def describe_machine() -> dict:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown")
    import torch  # imported only to record its version; both programs use this PyTorch wheel

    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="what",
                        help="launch, training, samples, checkpoint, recovery, rendezvous, spares, soak, before (default: all except soak and before)")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and steps: checks that the benchmarks work; the results are not accurate")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="repeats of each pair of programs (default: 5; with --quick 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="training, samples, launch and checkpoint: run only tables and rows whose name contains TEXT; soak: run only this part (agent, faults or the name of a job)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="soak: seed for the number, the kinds and the times of the random faults (default: 1)")
    parser.add_argument("--faults", type=int, metavar="N", help="soak: faults for each of the three jobs (default: 300 to 1,000, chosen by the seed)")
    parser.add_argument("--apart", type=float, default=5.0, metavar="SECONDS", help="soak: average time between two faults (default: 5)")
    parser.add_argument("--network-mbit", type=float, default=0.0, metavar="N", help="soak: limit the network to N Mbit/s")
    parser.add_argument("--before", type=pathlib.Path, metavar="DDPRUN", help="before: the ddprun of the build to compare with")
    parser.add_argument("--docs", action="store_true", help="write the newest tables of every benchmark to docs/benchmarks.md")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder of ddprun and ddptrain")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results", help="folder for the results")
    arguments = parser.parse_args()
    for name in arguments.what:
        if name not in SUITES:
            parser.error(f"unknown benchmark '{name}'; expected one of {', '.join(SUITES)}")

    tools = measure.Tools.find(arguments.bin.resolve())
    how = measure.RunOptions(arguments.quick, 1 if arguments.quick else arguments.repeats, arguments.only)
    machine = describe_machine()
    results = {"machine": machine, "quick": arguments.quick, "tables": []}
    soak_bench.seed, soak_bench.faults, soak_bench.apart, soak_bench.network_mbit = arguments.seed, arguments.faults, arguments.apart, arguments.network_mbit
    soak_bench.results = arguments.results
    before_bench.before = arguments.before.resolve() if arguments.before else None
    for name in arguments.what or [name for name in SUITES if name not in BY_NAME_ONLY]:
        print(f"== {name}", flush=True)
        for table in SUITES[name](tools, how):
            results["tables"].append(table.as_dict())
            print(table.as_markdown(), flush=True)

    folder = arguments.results
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = folder / f"{'-'.join(arguments.what) or 'all'}-{stamp}.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"written: {path}")
    newest = measure.keep_newest(folder / "newest.json", results)
    if arguments.docs:
        measure.write_docs(ROOT / "docs" / "benchmarks.md", newest)
        print("written: docs/benchmarks.md")
    missed = [row["name"] for table in results["tables"] for row in table["rows"] if row.get("met") is False]
    for name in missed:
        print(f"bar missed: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
