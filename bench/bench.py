"""Side-by-side benchmarks: ddprun and ddptrain against torchrun and Python's DistributedDataParallel, in one run.

Started by `./dev bench [what ...]`. Programs are interleaved and repeated, because a machine's speed drifts. Every number is a median with its
smallest and largest value. Results go to bench/results/*.json (not in git); --docs also writes the table to docs/benchmarks.md.
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
BY_NAME_ONLY = {"soak", "stragglers", "before"}  # the first two take long, the last needs another build


def describe_machine() -> dict:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown")
    import torch  # only for its version: the same wheel runs both sides

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
                        help="launch, training, samples, checkpoint, recovery, rendezvous, spares, soak, before; all but soak and before when none is named")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and steps: to see that it works, not to quote")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="of each pair of programs (5; with --quick 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="of the training, samples, launch and checkpoint benchmarks: the tables and rows with this in their name; of the soak: agent, faults or the name of a job")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the soak's faults: how many, of what kinds, and where (1)")
    parser.add_argument("--faults", type=int, metavar="N", help="of the soak, for each of its three jobs (300 to 1,000, which the seed says)")
    parser.add_argument("--apart", type=float, default=5.0, metavar="SECONDS", help="between two faults of the soak, on average (5)")
    parser.add_argument("--network-mbit", type=float, default=0.0, metavar="N", help="of the soak: on a network that sends N Mbit/s")
    parser.add_argument("--before", type=pathlib.Path, metavar="DDPRUN", help="of the benchmark 'before': the ddprun of the build to compare with")
    parser.add_argument("--docs", action="store_true", help="write the newest tables of every benchmark to docs/benchmarks.md")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder of ddprun and ddptrain")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results", help="folder of the figures")
    arguments = parser.parse_args()
    for name in arguments.what:
        if name not in SUITES:
            parser.error(f"there is no benchmark '{name}'; there are {', '.join(SUITES)}")

    tools = measure.Tools.find(arguments.bin.resolve())
    how = measure.How(arguments.quick, 1 if arguments.quick else arguments.repeats, arguments.only)
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
