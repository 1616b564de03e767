"""Runs the tests that need a GPU, and compares the speed of ddptrain with the speed of PyTorch's DistributedDataParallel in
Python. It runs either in the unpacked bundle of ./dev gpu, on another machine, or in a checkout with a build. If there is no
GPU, it runs the tests that need only a CPU. It needs no network, and no packages except torch in the version with which the
bundle was built.

usage: check.py [--figures FOLDER] [--torch FOLDER_OF_TORCH] [--build FOLDER] [--quick]
writes FOLDER/machine.json, tests.json, training.json and pytest.txt; exit code 0 if all tests and training runs passed
"""

import argparse
import array
import importlib.util
import json
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tests that need a GPU.
GPU_PART = [f"tests/whole_program/{name}.py" for name in ("test_gpu", "test_gpu_models", "test_gpu_metrics", "test_gpu_equivalence", "test_gpu_scripts")]
# Tests that a bundle runs on a machine without a GPU: the programs start, train, are killed and resume, in each precision.
CPU_PART = ["tests/whole_program/test_precision.py", "tests/whole_program/test_devices.py", "tests/whole_program/test_gpu.py"]


def fail(text: str):
    sys.exit(f"check: {text}")


def find_torch(requested: str | None) -> pathlib.Path:
    if requested:
        folder = pathlib.Path(requested).resolve()
    else:
        spec = importlib.util.find_spec("torch")
        if spec is None:
            fail(f"{sys.executable} has no torch; run this with a Python that has it, or name its folder with --torch")
        folder = pathlib.Path(spec.submodule_search_locations[0]).resolve()
    if not (folder / "lib/libtorch_cpu.so").exists():
        fail(f"{folder} is not a folder of torch: lib/libtorch_cpu.so is missing")
    return folder


def version_of(torch: pathlib.Path) -> str:
    file = torch / "version.py"
    return re.search(r"__version__ = '([^']+)'", file.read_text())[1] if file.exists() else (torch / "build-version").read_text().strip()


def link_torch(torch: pathlib.Path, about: dict, build: pathlib.Path) -> str:
    """Creates the link lib/ddprun/torch, through which the programs find LibTorch, and returns the version of torch. Fails if
    the programs were built with a different version, because the ABI of LibTorch differs between versions."""
    version = version_of(torch)
    if version.split("+")[0] != about["torch"]:
        fail(f"this was built with torch {about['torch']} and runs with no other; {torch} is {version}")
    if platform.machine() != about["arch"]:
        fail(f"this was built for {about['arch']}; this machine is {platform.machine()}")
    link = build / "lib/ddprun/torch"
    link.unlink(missing_ok=True)
    link.symlink_to(torch)
    started = subprocess.run([build / "bin/ddptrain", "--version"], capture_output=True, text=True, check=False)
    if started.returncode != 0:
        fail(f"ddptrain does not start here: {started.stderr.strip()}")
    return version


def gpus() -> list[dict]:
    if not any(p.name[6:].isdigit() for p in pathlib.Path("/dev").glob("nvidia[0-9]*")):
        return []
    names = ["name", "driver_version", "memory.total", "compute_cap"]
    try:
        rows = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"], capture_output=True, text=True,
                              check=True).stdout.splitlines()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return [{"name": "unknown: nvidia-smi does not answer"}]
    return [dict(zip(names, (field.strip() for field in row.split(",")))) for row in rows]


def imports(*modules: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], capture_output=True, check=False).returncode == 0


def uses_own_pytest() -> bool:
    return (ROOT / "python").is_dir() and not imports("pytest", "pytest_timeout")


def environment(build: pathlib.Path, data: pathlib.Path | None) -> dict:
    own = {**os.environ, "DDPRUN_BUILD_DIR": str(build), "PYTHONDONTWRITEBYTECODE": "1"}
    if not imports("torch", "numpy", "safetensors.torch"):
        own["DDPRUN_NO_TORCH_PYTHON"] = "1"  # reports the tests that compare with PyTorch in Python as skipped
    if data:
        own["DDPRUN_DATASET"] = str(data)
    if uses_own_pytest():
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return own


def run_tests(figures: pathlib.Path, own: dict, has_gpu: bool) -> dict:
    results = figures / "pytest.xml"
    selection = GPU_PART if has_gpu else CPU_PART
    with (figures / "pytest.txt").open("w") as log:
        code = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-rs", "--timeout=600", f"--junitxml={results}",
                               *selection], cwd=ROOT, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                              check=False).returncode
    tests = []
    if results.exists():
        for case in xml.parse(results).iter("testcase"):
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            skipped = case.find("skipped")
            tests.append({"name": case.get("name"), "seconds": float(case.get("time")),
                          "result": "failed" if bad is not None else "skipped" if skipped is not None else "passed",
                          "why": (bad if bad is not None else skipped).get("message", "") if bad is not None or skipped is not None else ""})
        results.unlink()
    return {"exit_code": code, "tests": tests}


def settings(data: pathlib.Path, device: str, model: str, batch: int, steps: int, every: int, **more) -> dict:
    return {"name": "gpu", "model": {"type": model}, "data": {"type": "idx", "dir": str(data), "mean": 0.2860, "std": 0.3530, "test_samples": 16},
            "epochs": 1000, "max_steps": steps, "batch_size": batch, "eval_every_epochs": 0, "device": device,
            "optimizer": {"type": "sgd", "lr": 0.005, "momentum": 0.9}, "log": {"every_steps": every, "tensorboard": False}, **more}


GPT = {"type": "gpt", "n_layer": 12, "n_head": 12, "n_embd": 768, "dropout": 0.0}  # GPT-2 small
BLOCK, VOCABULARY = 1024, 50304


def gpt_settings(folder: pathlib.Path, device: str, batch: int, steps: int, every: int, **more) -> dict:
    """Returns a config for GPT-2 small on random tokens. A model cannot learn random tokens, but only the speed is measured."""
    tokens = folder / "train.bin"
    if not tokens.exists():
        draw = random.Random(1)
        tokens.write_bytes(array.array("H", (draw.randrange(50257) for _ in range(BLOCK * 1024 + 1))).tobytes())
        (folder / "val.bin").write_bytes(tokens.read_bytes()[:2 * (16 * BLOCK + 1)])
    return {**settings(folder, device, "gpt", batch, steps, every, **more), "model": GPT, "optimizer": {"type": "adamw", "lr": 1e-4},
            "data": {"type": "tokens", "dir": str(folder), "train_tokens": "train.bin", "test_tokens": "val.bin", "block_size": BLOCK, "vocab_size": VOCABULARY}}


def steady_speed(events: list[dict], batch: int, every: int) -> float | None:
    """Returns the samples per second between the first and last logged step after the warm-up, or None if there are fewer than
    two such steps."""
    steady = [(e["step"], e["time_ns"]) for e in events if e["event"] == "step" and e["step"] >= 2 * every]
    if len(steady) < 2:
        return None
    (s0, t0), (s1, t1) = steady[0], steady[-1]
    return (s1 - s0) * batch / ((t1 - t0) / 1e9)


def read_events(file: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def train(command: list, metrics: pathlib.Path, batch: int, every: int, own: dict) -> dict:
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)
    events = read_events(metrics)
    out = {"seconds": round(time.monotonic() - begin, 3), "exit_code": done.returncode, "samples_per_second": steady_speed(events, batch, every)}
    pauses = [e["pause_s"] for e in events if e["event"] == "checkpoint" and "pause_s" in e]
    if pauses:
        out["checkpoint_pause_s"] = {"first": pauses[0], "median": statistics.median(pauses), "largest": max(pauses)}
    if done.returncode != 0:
        out["stderr"] = done.stderr[-4000:]
    return out


def measure(build: pathlib.Path, data: pathlib.Path, own: dict, has_gpu: bool, quick: bool, only: str, torch_python: bool) -> list[dict]:
    device = "cuda" if has_gpu else "cpu"
    if has_gpu:
        cases = [(model, batch, precision, last) for model, batch in (("cnn", 1024), ("resnet18", 512))
                 for precision, last in (("fp32", False), ("tf32", False), ("bf16", False), ("bf16", True))]
        cases += [("gpt", 16, "bf16", False)]
        steps, every, repeats = (120, 20, 1) if quick else (300, 50, 3)
    else:
        cases = [("cnn", 64, "fp32", False), ("cnn", 64, "bf16", False)]
        steps, every, repeats = 24, 6, 1
    cases = [case for case in cases if only in f"{case[0]} {case[2]}{' channels_last' if case[3] else ''}"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-gpu-") as name:
        for model, batch, precision, last in cases:
            row = {"model": model, "batch": batch, "precision": precision, "channels_last": last, "device": device, "ddptrain": [], "python": []}
            rows.append(row)
            for i in range(repeats):
                folder = pathlib.Path(name) / f"{model}-{precision}-{last}-{i}"
                folder.mkdir()
                config = folder / "train.json"
                more = {"precision": precision, "channels_last": last, "checkpoint": {"every_steps": 2 * every, "keep": 1}}
                content = gpt_settings(pathlib.Path(name), device, batch, steps // 3, every // 3, **more) if model == "gpt" else settings(
                    data, device, model, batch, steps, every, **more)
                config.write_text(json.dumps(content))
                row["ddptrain"].append(train([build / "bin/ddprun", "-q", "--nproc-per-node", 1, "--run-dir", folder / "run", config],
                                             folder / "run/metrics.jsonl", batch, content["log"]["every_steps"], own))
                if torch_python and has_gpu:
                    out = folder / "python.jsonl"
                    row["python"].append(train([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 1,
                                                ROOT / "tests/gpu/python_gpu.py", config, out], out, batch, content["log"]["every_steps"], own))
            best = {program: max((r["samples_per_second"] or 0 for r in row[program]), default=0) for program in ("ddptrain", "python")}
            print(f"  {model}, batch {batch}, {precision}{', channels_last' if last else ''}: ddptrain {best['ddptrain']:.0f} samples/s"
                  + (f", Python {best['python']:.0f}" if row["python"] else ""), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=pathlib.Path, default=pathlib.Path("figures"))
    parser.add_argument("--torch")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("--only", default="", metavar="TEXT", help="train only the models whose name contains TEXT")
    parser.add_argument("--no-tests", action="store_true", help="measurements only")
    options = parser.parse_args()
    bundled = ROOT / "bundle.json"
    build = (options.build or ROOT / "build").resolve()
    torch = find_torch(options.torch)
    if bundled.exists():
        about = json.loads(bundled.read_text())
        version = link_torch(torch, about, build)
    else:
        about, version = {}, version_of(torch)
    data = ROOT / "data" if (ROOT / "data").is_dir() else pathlib.Path(os.environ.get("DDPRUN_DATASET", "/usr/share/datasets/fashion-mnist"))
    own = environment(build, data)
    figures = options.figures.resolve()
    figures.mkdir(parents=True, exist_ok=True)
    found = gpus()
    print(", ".join(gpu["name"] for gpu in found) if found else "no NVIDIA GPU on this machine: only what a CPU can show is checked", flush=True)
    machine = {"gpus": found, "torch": version, "built_with": about, "python": platform.python_version(), "kernel": platform.release(),
               "cpus": os.cpu_count(), "ddprun": subprocess.run([build / "bin/ddprun", "--version"], capture_output=True, text=True,
                                                                check=False).stdout.strip()}
    (figures / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")

    results = {"exit_code": 0, "tests": []} if options.no_tests else run_tests(figures, own, bool(found))
    (figures / "tests.json").write_text(json.dumps(results, indent=1) + "\n")
    count = {kind: sum(t["result"] == kind for t in results["tests"]) for kind in ("passed", "failed", "skipped")}
    print(f"tests: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped; {figures / 'pytest.txt'}", flush=True)

    print("training:", flush=True)
    rows = measure(build, data, own, bool(found), options.quick, options.only, torch_python=imports("torch"))
    (figures / "training.json").write_text(json.dumps(rows, indent=1) + "\n")
    failed_runs = sum(run["exit_code"] != 0 for row in rows for program in ("ddptrain", "python") for run in row[program])
    print(f"measurements: {figures}" + (f"; {failed_runs} training runs failed, training.json has their messages" if failed_runs else ""))
    return 1 if results["exit_code"] not in (0, 5) or not (count["passed"] or options.no_tests) or failed_runs else 0


if __name__ == "__main__":
    sys.exit(main())
