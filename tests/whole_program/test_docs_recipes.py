"""Tests of the recipes in docs/. The tests extract the scripts, configs, batch files and manifests from the pages and run them.
The output must match the output that the pages show."""

import json
import pathlib
import re
import shlex
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


def shapes(text: str) -> list[str]:
    """Returns the lines of an output with numbers and folders replaced, so that outputs of different runs are equal. Drops the
    lines about progress and stragglers, which depend on the machine's speed. Joins lines that a page has wrapped."""
    lines = [line for line in re.sub(r"\n {4}", " ", text).splitlines() if not re.match(r"epoch \d+/\d+  step|rank \d+ .*keeps the others waiting", line)]
    return [re.sub(r"\S*/(?=[\w.-])", "", re.sub(r"\d[\d,.]*", "N", line)) for line in lines]


def run_torch(command: list, **more) -> subprocess.CompletedProcess:
    """Runs a command that uses PyTorch. If Gloo in PyTorch aborts a worker while Python exits, runs the command again, up to
    four times (docs/internals/decisions/tests/python-sigabrt.md)."""
    for _ in range(4):
        done = jobs.run(command, PYTHON_EXEC=sys.executable, **more)
        if "terminate called without an active exception" not in done.stderr:
            break
    return done


@pytest.mark.needs_torch_python
def test_quickstart(ddprun_bin, tmp_path):
    (script, *_), (shown, trained, again, longer) = blocks("quickstart.md", "python"), blocks("quickstart.md", "text")
    assert len([line for line in script.splitlines() if line.strip()]) <= 22
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = run_torch([ddprun_bin, "--nproc-per-node", 2, "train.py"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr

    (tmp_path / "train.json").write_text(blocks("quickstart.md", "json")[0], encoding="utf-8")
    for command, expected in (((), trained), ((), again), (("max_steps=400",), longer)):
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "train.json", *command], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert shapes(done.stdout) == shapes(expected)
    (tmp_path / "made-up.json").write_text(blocks("quickstart.md", "json")[1], encoding="utf-8")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "made-up.json", "max_steps=2"], cwd=tmp_path)
    assert done.returncode == 0 and "done: test accuracy" in done.stdout, done.stderr
    summary, prometheus, _ = blocks("watching.md", "python")
    read = jobs.run([sys.executable, "-c", summary], cwd=tmp_path)
    assert shapes(read.stdout) == shapes(blocks("watching.md", "text")[0]), read.stderr
    written = jobs.run([sys.executable, "-c", prometheus, "runs/clothes", "clothes.prom"], cwd=tmp_path)
    [expected] = [text for text in blocks("watching.md", "text") if text.startswith("ddprun_")]
    assert shapes((tmp_path / "clothes.prom").read_text()) == shapes(expected), written.stderr


def test_a_script_without_the_package(tmp_path):
    """docs/python-scripts.md shows code that replaces the package ddprun if it is not installed. With this code a script must
    train the same weights. The code must define every public name of the package."""
    [recipe] = [text for text in blocks("python-scripts.md", "python") if "except ImportError" in text]
    script = recipe + """
class Line:
    a = b = 0.0
    def __call__(self, x):
        return self.a * x + self.b
model = ddprun.watch(Line())
kept = ddprun.restore(like={"a": 0.0})
done = 0
if kept:
    model.a, done = kept["a"], kept["step"]
for n in range(done + 1, 51):
    with ddprun.stop_at_step(lambda: print("saved")):
        x = n % 7 - 3 + ddprun.rank
        error = model(x) - (2 * x + 1)
        model.a, model.b = model.a - 0.05 * error * x, model.b - 0.05 * error
        ddprun.step(n, loss=error * error, samples=1, total=50, epoch=0, epochs=1, accuracy=lambda: 1.0)
    if ddprun.rank == 0 and ddprun.snapshot({"a": model.a}, step=n, replicated=True):
        print("kept")
    if ddprun.should_save():
        ddprun.stopped()
ddprun.saved("model.pt", seconds=0.1)
ddprun.error("data", "none")
print(model.a, model.b, ddprun.rank, ddprun.local_rank, ddprun.world_size, ddprun.restart, ddprun.cause, ddprun.in_job(), ddprun.REQUEUE)
"""
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (tmp_path / "without.py").write_text("import sys\nsys.modules['ddprun'] = None  # an import of it is an ImportError\n" + script, encoding="utf-8")
    names = json.loads(jobs.run([sys.executable, "-c", "import ddprun, json; print(json.dumps(ddprun.__all__))"], PYTHONPATH=str(ROOT / "python")).stdout)
    for env in ({}, {"RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "3"}):
        with_it = jobs.run([sys.executable, "train.py"], cwd=tmp_path, PYTHONPATH=str(ROOT / "python"), **env)
        without = jobs.run([sys.executable, "without.py"], cwd=tmp_path, **env)
        assert (without.returncode, without.stdout) == (0, with_it.stdout), without.stderr
    has = jobs.run([sys.executable, "-c", "import sys\nsys.modules['ddprun'] = None\n" + recipe + f"print([n for n in {names} if not hasattr(ddprun, n)])\nddprun.stopped()"])
    assert (has.returncode, has.stdout) == (85, "[]\n"), has.stderr


def test_a_gpt(ddprun_bin, ddptrain_bin, tmp_path):
    (tmp_path / "ddprun").symlink_to(ROOT)
    subprocess.run(["sh", "-ec", blocks("gpt.md", "sh")[0]], cwd=tmp_path, check=True)
    (tmp_path / "train.json").write_text(blocks("gpt.md", "json")[0], encoding="utf-8")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "train.json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert shapes(done.stdout) == shapes(blocks("gpt.md", "text")[0])
    [command] = [block for block in blocks("gpt.md", "sh") if block.startswith("ddptrain generate")]
    words = shlex.split(command)
    # The model was trained only briefly, so its text can contain invalid UTF-8. Therefore the output is read as bytes.
    text = subprocess.run([ddptrain_bin, *words[1:]], cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert text.returncode == 0 and text.stdout.startswith(words[words.index("--prompt") + 1].encode()), text.stderr


def test_two_machines(make_hosts, tmp_path):
    """Runs the commands of the page on two hosts. A firewall between them lets only the port range pass."""
    hosts = make_hosts(2)
    hosts.drop("ip protocol tcp tcp dport != 29400-29499 tcp sport != 29400-29499")
    page = "\n".join(blocks("two-machines.md", "sh")).replace("10.0.0.1", hosts.address(0))
    first = next(line for line in re.findall(r"^ddprun (.*train\.json)", page, re.M) if not line.startswith("--hosts"))
    second, *_ = re.findall(r"^ddprun (join .*)", page, re.M)
    jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data")))
    # hosts.start_on() adds the test's token file, so the page's option is removed.
    words = [[word for word in command.split() if word not in ("--token-file", "job.token")] for command in (first, second)]
    hosts.start_on(0, *words[0], "--run-dir", tmp_path / "first")
    hosts.until_printed(0, "ddprun join")
    hosts.start_on(1, *words[1], "--run-dir", tmp_path / "second")
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert "node host1 joined; 2 of 2 nodes are present" in hosts.text(0), hosts.text(0)


def test_the_batch_file_of_slurm(slurm, ddprun_bin, tmp_path):
    """Runs the batch file of docs/slurm.md with two changes, because the test cluster has no GPUs, and ddprun is not on
    PATH."""
    text, _ = blocks("slurm.md", "bash")
    text = re.sub(r"^#SBATCH --gpus.*\n", "", text, flags=re.M).replace(" ddprun ", f" {ddprun_bin} ")
    assert text.startswith("#!/bin/bash\n#SBATCH")
    (tmp_path / "train.sbatch").write_text(text)
    jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=40))
    done = slurm.run("sbatch", "--parsable", "train.sbatch")
    assert done.returncode == 0, done.stderr + slurm.logs()
    number, run = done.stdout.strip(), tmp_path / "runs" / "train"
    metrics = run / "metrics.jsonl"
    slurm.hosts.until(lambda: metrics.exists() and metrics.read_bytes().count(b'"step"') > 20, "twenty steps")
    # This is the signal that Slurm sends before the time limit because of `#SBATCH --signal`.
    slurm.run("scancel", "--signal=TERM", f"{number}.0")
    slurm.until_gone(number)
    assert [start["exit"]["code"] for start in jobs.report(run)["invocations"]] == [85, 0], (tmp_path / f"train-{number}.out").read_text()


def test_the_batch_file_of_slurm_for_scripts(slurm, ddprun_bin, tmp_path):
    """The batch file starts a Python script that uses stop_at_step(). Slurm sends SIGTERM to every process of the job step, so
    the workers receive the signal, too."""
    _, text = blocks("slurm.md", "bash")
    text = re.sub(r"^#SBATCH --gpus.*\n", "", text, flags=re.M).replace(" ddprun ", f" {ddprun_bin} ")
    assert "B:" not in text
    exports = f"export PYTHONPATH={ROOT}/python PYTHON_EXEC={sys.executable} PYTHONDONTWRITEBYTECODE=1\ncode=0\n"
    (tmp_path / "script.sbatch").write_text(text.replace("code=0\n", exports, 1))
    (tmp_path / "train.py").write_text("""
import ddprun, os, time
file = "step-%d" % ddprun.rank
first = int(open(file).read()) + 1 if os.path.exists(file) else 1
n = first
def save():
    time.sleep(0.5)
    open(file, "w").write(str(n))
for n in range(first, 10000 if first == 1 else first + 5):
    with ddprun.stop_at_step(save):
        time.sleep(0.01 + 0.01 * ddprun.rank)
    ddprun.step(n)
    open("started-%d" % ddprun.rank, "w").close()
print("done", ddprun.rank, "from", first, flush=True)
""")
    done = slurm.run("sbatch", "--parsable", "script.sbatch")
    assert done.returncode == 0, done.stderr + slurm.logs()
    number = done.stdout.strip()
    slurm.hosts.until(lambda: all((tmp_path / f"started-{rank}").exists() for rank in (0, 1)), "the first steps")
    slurm.run("scancel", "--signal=TERM", f"{number}.0")
    slurm.until_gone(number)
    output = (tmp_path / f"script-{number}.out").read_text()
    assert "exit code 85" in output, output
    steps = {(tmp_path / f"step-{rank}").read_text() for rank in (0, 1)}
    assert len(steps) == 1 and f"done 0 from {int(steps.pop()) + 1}" in output, output


@pytest.mark.parametrize("ends", ["script", "signal"])
def test_an_exit_code_85_of_the_script_is_distinguished(ddprun_bin, script, tmp_path, ends):
    """Exit code 85 can come from the script or from ddprun itself. The code in docs/exit-codes.md must distinguish these two
    cases."""
    (check,) = blocks("exit-codes.md", "python")
    (tmp_path / "own_code.py").write_text(check, encoding="utf-8")
    if ends == "script":
        done = jobs.run([ddprun_bin, "--standalone", "--run-dir", tmp_path / "run", "--no-python", script("exit 85")])
    else:
        config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=10000))
        running = jobs.start([ddprun_bin, "--json", "--run-dir", tmp_path / "run", config])
        next(line for line in running.stdout if '"progress"' in line)
        running.terminate()
        running.stdout.read()
        done = subprocess.CompletedProcess([], running.wait(60))
    assert done.returncode == 85
    result = jobs.run([sys.executable, tmp_path / "own_code.py", tmp_path / "run"])
    assert result.returncode == {"script": 0, "signal": 1}[ends], result.stderr


def test_a_table(ddprun_bin, ddptrain_bin, tmp_path):
    subprocess.run(["sh", "-ec", blocks("tables.md", "sh")[0]], cwd=tmp_path, check=True)
    (tmp_path / "train.json").write_text(blocks("tables.md", "json")[0], encoding="utf-8")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "train.json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "done: test mean_absolute_error" in done.stdout, done.stdout


def test_a_script_that_reduces_its_memory(ddprun_bin, tmp_path):
    (script, *_), (shown, *_) = blocks("out-of-memory.md", "python"), blocks("out-of-memory.md", "text")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = jobs.run([ddprun_bin, "--max-restarts", 3, "train.py"], cwd=tmp_path, PYTHON_EXEC=sys.executable)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line for line in shown.splitlines() if line.startswith("batch")]
    assert shapes("\n".join(line for line in done.stderr.splitlines() if line.startswith("ddprun"))) == shapes(
        "\n".join(line for line in shown.splitlines() if line.startswith("ddprun")))


@pytest.mark.needs_torch_python
def test_a_script_that_resumes(ddprun_bin, tmp_path):
    (script, *_), (shown, *_) = blocks("resume.md", "python"), blocks("resume.md", "text")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = run_torch([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 3, "train.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line for line in shown.splitlines() if line.startswith("epoch")]


def test_a_debugger_prompt(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text(blocks("debugging.md", "python")[0], encoding="utf-8")
    done = subprocess.run([ddprun_bin, "--standalone", "train.py"], input="p x\nc\n", cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
                          env=jobs.clean_environment(PYTHON_EXEC=sys.executable))
    assert done.returncode == 0 and "(Pdb) 41\n" in done.stdout, done.stderr


def test_quoted_messages_occur_in_the_sources():
    """docs/troubleshooting.md quotes messages, with "..." instead of the variable words. All other words of a message must
    occur in the sources."""
    sources = ""
    for top in ("common", "rendezvous", "launcher", "trainer", "cmd"):
        for file in sorted((ROOT / top).rglob("*.cpp")) + sorted((ROOT / top).rglob("*.hpp")):
            text = file.read_text(encoding="utf-8")
            sources += re.sub(r'"\s*\n\s*"', "", text).replace('\\"', '"')  # joins string literals that span several lines
    quoted = re.findall(r"^### `(.*)`$", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), re.M)
    assert len(quoted) >= 28 and len(set(quoted)) == len(quoted)
    missing = [f"{message}: {part!r}" for message in quoted for part in re.split(r"\.\.\.|\d+", message)
               if len(part.strip()) > 3 and part.strip(" :'") not in sources]
    assert not missing, "\n".join(missing)


def test_the_index_names_every_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([\w-]+\.md)", index))


@pytest.mark.long
@pytest.mark.needs_torch_python
def test_onnx(ddprun_bin, ddptrain_bin, tmp_path):
    """Runs the commands of docs/onnx.md with a smaller job. onnxruntime must compute the same accuracy as ddptrain."""
    for package in ("torchvision", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    (config,), (commands,), (to_onnx, query) = blocks("onnx.md", "json"), blocks("onnx.md", "sh"), blocks("onnx.md", "python")
    (tmp_path / "train.json").write_text(config)
    train, export = (shlex.split(line) for line in commands.splitlines())
    done = jobs.run([ddprun_bin, *train[1:], "data.train_samples=640", "data.test_samples=200", "max_steps=20"], timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert jobs.run([ddptrain_bin, *export[1:]], cwd=tmp_path).returncode == 0
    first = query.replace("-ubyte\", 8)", "-ubyte\", 8)[:200]").replace("(numpy.float32)", "(numpy.float32)[:200]")
    for script in (to_onnx, first):
        result = jobs.run([sys.executable, "-c", script], timeout=300, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    accuracy = jobs.metrics(tmp_path / "runs/pictures", "eval")[-1]["accuracy"]
    assert result.stdout == f"test accuracy {accuracy:.2%}\n" and 0.1 < accuracy < 1
