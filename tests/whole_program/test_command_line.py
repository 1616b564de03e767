"""Tests of ddprun's command line in the real program. Each usage error must give one line on stderr and exit code 2. A valid
command line must give a plan that shows the origin of each value."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_config(folder: pathlib.Path, **changes) -> pathlib.Path:
    file = folder / "train.json"
    file.write_text(json.dumps({"name": "small", "batch_size": 8, "data": {"type": "synthetic"}, **changes}), encoding="utf-8")
    return file


@pytest.fixture
def script(tmp_path) -> pathlib.Path:
    """Returns a shell script that prints its rank and arguments. It starts faster than Python."""
    file = tmp_path / "job.sh"
    file.write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE: $*"\n', encoding="utf-8")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("args,message", [
    ([], "nothing to run: name a train.json, a script or a program after the options; ddprun --help shows examples"),
    (["--nproc-per-nod3", "2", "x.py"], "unknown option --nproc-per-nod3. Did you mean --nproc-per-node?"),
    (["--master", "h", "x.py"], "option --master is ambiguous: it could be --master-addr, --master-port"),
    (["-x", "x.py"], "unknown option -x; ddprun --help lists the options"),
    (["--\x1b[31m", "x.py"], "unknown option --\\u001b[31m; ddprun --help lists the options"),
    (["--run-dir"], "--run-dir needs a value (DIR), but the command line ends there"),
    (["--json=yes", "x.py"], "--json takes no value, but was given 'yes'"),
    (["missing.py"], "cannot read script missing.py: No such file or directory"),
    (["--quiet", "validate", "t.json"], "cannot read script validate: No such file or directory. "
     "A subcommand must be the first argument: ddprun validate ..."),
    (["--no-python", "no-such-program"], "program no-such-program is not on PATH; for a file in this folder use ./no-such-program"),
    (["--no-python", "-m", "x"], "--module and --no-python cannot be combined: a module needs Python"),
    (["--nproc-per-node", "two", "job.sh"],
     "--nproc-per-node: expected a number of workers, auto, cpu, gpu or xpu, but got 'two' (flag --nproc-per-node)"),
    (["--max-restarts", "-1", "job.sh"],
     "--max-restarts: expected a whole number from 0 to 1000000, but got '-1' (flag --max-restarts)"),
    (["--shutdown-timeout", "soon", "job.sh"],
     "--shutdown-timeout: expected a number, but got 'soon' (flag --shutdown-timeout)"),
    (["--restart-policy", "none.json", "job.sh"], "cannot read restart policy TMP/none.json: No such file or directory"),
    (["--restart-policy", ".", "job.sh"], "TMP is a folder, expected a restart policy file"),
    (["--run-dir", "", "job.sh"], "--run-dir: expected the name of a folder, but got '' (flag --run-dir)"),
    (["-t11", "job.sh"],
     "--tee: expected 0, 1 (stdout), 2 (stderr) or 3 (both), or one of them for each local rank, as in 0:1,1:2, but got '11' (flag --tee)"),
    (["--numa-binding", "all", "job.sh"],
     "--numa-binding: expected node, socket, exclusive or core-complex, but got 'all' (flag --numa-binding)"),
    (["--rdzv-conf", "join_timeout=soon", "job.sh"],
     "--rdzv-conf: join_timeout must be a number of seconds above 0, but is 'soon' (flag --rdzv-conf)"),
    (["--standalone", "--nnodes", "2", "job.sh"],
     "--standalone is for one machine, but --nnodes is 2 (flag --nnodes); remove one of the two options"),
    (["--nnodes", "1:2", "--arbiter", "10.0.0.5:2379", "job.sh"],
     "--arbiter: expected etcd://HOST:PORT, such as etcd://10.0.0.5:2379, but got '10.0.0.5:2379' (flag --arbiter)"),
    (["--nnodes", "1:2", "--arbiter", "etcd://10.0.0.5", "job.sh"],
     "--arbiter: expected etcd://HOST:PORT, such as etcd://10.0.0.5:2379, but got 'etcd://10.0.0.5' (flag --arbiter)"),
    (["--nnodes", "1:2", "--arbiter", "etcds://h:1", "job.sh"],
     "--arbiter: expected etcd://HOST:PORT, such as etcd://10.0.0.5:2379 (ddprun connects to etcd without TLS: use a port with plain HTTP), "
     "but got 'etcds://h:1' (flag --arbiter)"),
    (["--nnodes", "1:2", "--arbiter", "etcd://me:pw@h:1", "job.sh"],
     "--arbiter: expected etcd://HOST:PORT, such as etcd://10.0.0.5:2379 (ddprun sends no user name to etcd: use a server without authentication), "
     "but got 'etcd://me:pw@h:1' (flag --arbiter)"),
    (["--nnodes", "2", "--arbiter", "etcd://h:1", "job.sh"],
     "--arbiter decides which of two nodes continues alone, so it needs --nnodes 1:MAX with MAX above 1, but --nnodes is 2:2 (flag --arbiter); "
     "remove --arbiter, or change --nnodes"),
    (["--fresh", "job.sh"], "--fresh (flag --fresh) requires a train.json: a script manages its own files"),
    (["--standby", "1", "job.sh"],
     "--standby (flag --standby) requires a train.json, a Python script or a Python module, but a program was given"),
    (["--standby", "some", "job.sh"], "--standby: expected a whole number, but got 'some' (flag --standby)"),
    (["report", "run", "--html", ""],
     "--html needs the name of the page to write; usage: ddprun report [FOLDER] [--json | --html [FILE]] [--open] [--follow]"),
    (["report", "run", "--follow"],
     "--follow rewrites a page while the job runs: add --html FILE, or --open; to follow the job on this terminal, use ddprun top; "
     "usage: ddprun report [FOLDER] [--json | --html [FILE]] [--open] [--follow]"),
    (["token", "x"], "unexpected argument 'x'; usage: ddprun token [--run-dir DIR | --token-file FILE | --new FILE] [--show]"),
    (["join", "host"],
     "join: expected HOST:PORT, as the coordinator's console shows it, but got 'host'; "
     "usage: ddprun join HOST:PORT [--token-file FILE] [options of this node]"),
    (["join", "fd00::7:29400"],
     "join: expected an IPv6 address in brackets before the port, [fd00::7]:29400, but got 'fd00::7:29400'; "
     "usage: ddprun join HOST:PORT [--token-file FILE] [options of this node]"),
    (["report", "a", "b"], "unexpected argument 'b'; usage: ddprun report [FOLDER] [--json | --html [FILE]] [--open] [--follow]"),
    (["validate"], "usage: ddprun validate [--worker PROGRAM] TRAIN.json [key.path=value ...]"),
])
def test_a_mistake_is_one_line_and_exit_code_2(ddprun_bin, run, script, args, message, tmp_path):
    done = run([ddprun_bin, *args])
    expected = message.replace("TMP", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ddprun: {expected}\n")


def test_a_restart_policy_counts_by_cause_and_is_displayed(ddprun_bin, run, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text('{"max_restarts": 5, /* ours */ "causes": {"exit_code": 1}}')
    shown = run([ddprun_bin, "--dry-run", "--restart-policy", policy, "--no-python", "false"])
    assert "exit_code: 1 restart " in shown.stdout
    done = run([ddprun_bin, "--standalone", "--restart-policy", policy, "--no-python", "false"])
    assert done.returncode == 1
    assert "the 1 restart allowed for failures of cause exit_code is spent" in done.stderr
    policy.write_text('{"causes": {"segfault": 1}}')
    refused = run([ddprun_bin, "--restart-policy", policy, "--no-python", "true"])
    assert refused.returncode == 2
    assert f"{policy}:1:13: unknown key 'segfault' (/causes/segfault)." in refused.stderr


def test_a_mistake_in_the_environment_names_the_variable(ddprun_bin, run, script):
    done = run([ddprun_bin, script], PET_MAX_RESTARTS="many")
    assert done.returncode == 2
    assert done.stderr == "ddprun: --max-restarts: expected a whole number, or auto, but got 'many' (environment PET_MAX_RESTARTS)\n"


def test_too_many_workers_for_the_batch(ddprun_bin, ddptrain_bin, run, tmp_path):
    config = write_config(tmp_path, device="cpu")
    done = run([ddprun_bin, "--nproc-per-node", "9", config])
    assert done.returncode == 2
    assert "batch_size 8 is smaller than the number of workers, 9" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_fresh_does_not_mix_with_old_checkpoints(ddprun_bin, ddptrain_bin, run, tmp_path):
    config = write_config(tmp_path)
    (tmp_path / "runs/small/checkpoints/step-000000400").mkdir(parents=True)
    done = run([ddprun_bin, "--resume", "never", config])
    assert done.returncode == 2
    assert "--fresh" in done.stderr


def test_help_fits_a_screen(ddprun_bin, run):
    done = run([ddprun_bin, "--help"])
    assert done.returncode == 0 and done.stderr == ""
    assert len(done.stdout.splitlines()) <= 30 and max(map(len, done.stdout.splitlines())) <= 80
    assert run([ddprun_bin, "-h"]).stdout == done.stdout == run([ddprun_bin, "help"]).stdout


@pytest.mark.parametrize("name", ["validate", "init", "report", "join", "token", "submit", "doctor", "link-torchrun", "help", "version"])
def test_each_subcommand_has_help(ddprun_bin, run, name):
    done = run([ddprun_bin, "help", name])
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith(f"usage: ddprun {name}"), done.stdout
    if name not in ("help", "version"):
        assert run([ddprun_bin, name, "--help"]).stdout == done.stdout


def test_the_manual_page_is_valid(ddprun_bin, run, tmp_path):
    page = run([ddprun_bin, "--print-man"]).stdout
    assert page.startswith(".TH DDPRUN 1 ")
    if shutil.which("groff"):
        (tmp_path / "ddprun.1").write_text(page, encoding="utf-8")
        assert run(["groff", "-man", "-ww", "-z", tmp_path / "ddprun.1"]).stderr == ""


def test_options_are_accepted_after_a_config(ddprun_bin, run, tmp_path):
    config = tmp_path / "train.json"
    config.write_text((ROOT / "configs/fashion-mnist.json").read_text(encoding="utf-8"), encoding="utf-8")
    done = run([ddprun_bin, config, "--dry-run", "batch_size=4", "--json", "--run-dir", tmp_path / "run"])
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["event"] == "plan" and str(tmp_path / "run") in plan["command"]
    result = run([ddprun_bin, config, "--dry-run", "--json", "batch_size=nine"])
    # A word with an invalid value is still recognized as an override of a config key.
    assert result.returncode == 2 and "batch_size=nine" in result.stderr
    program = tmp_path / "tool.json"
    program.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    assert run([ddprun_bin, "--standalone", "--no-python", program, "--dry-run", "-q"]).stdout == "--dry-run -q\n"


@pytest.mark.parametrize("args", [["--json", "--nproc-per-nod", "2", "--nope", "x.py"], ["--json", "missing.py"], ["train.json", "epocs=3", "--json"],
                                  ["report", "nowhere", "--json"]])
def test_a_mistake_is_an_event_under_json(ddprun_bin, run, tmp_path, args):
    write_config(tmp_path)
    done = run([ddprun_bin, *args])
    assert done.returncode == 2
    [event] = [json.loads(line) for line in done.stdout.splitlines()]
    assert event == {"event": "usage_error", "exit_code": 2, "message": done.stderr.removeprefix("ddprun: ").rstrip("\n")}


def test_a_scripts_own_json_changes_nothing(ddprun_bin, run, script):
    script.write_text("#!/bin/sh\nexit 2\n", encoding="utf-8")
    assert run([ddprun_bin, "--standalone", script, "--json"]).stdout == ""


def test_a_new_type_drops_the_keys_of_the_old_type(ddprun_bin, run, tmp_path):
    config = write_config(tmp_path, schedule={"type": "step", "step_epochs": 2, "gamma": 0.5})
    done = run([ddprun_bin, "validate", config, "schedule.type=constant"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schedule"] == {"type": "constant", "warmup_steps": 0}
    assert done.stderr == ('ddprun: warning: override schedule.type=constant: ignoring the keys in the file for type "step": '
                           f'schedule.step_epochs, schedule.gamma\nddprun: {config} is valid, and all files that it names exist\n')
    again = run([ddprun_bin, config, "--dry-run", "schedule.type=constant", "--run-dir", tmp_path / "run"])
    assert again.returncode == 0, again.stderr


def failure_on_a_terminal(ddprun_bin, **environment) -> str:
    ours, theirs = pty.openpty()
    env = {key: value for key, value in jobs.clean_environment(**environment).items() if key != "NO_COLOR" or "NO_COLOR" in environment}
    subprocess.run([str(ddprun_bin), "--standalone", "--no-python", "sh", "-c", "exit 3"], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL,
                   check=False, timeout=30, env=env)
    os.close(theirs)
    output = b""
    try:
        while more := os.read(ours, 4096):
            output += more
    except OSError:  # on Linux, reading a terminal fails with EIO after the other end was closed and all output was read
        pass
    os.close(ours)
    return output.decode()


def test_failure_lines_are_red_only_on_a_terminal(ddprun_bin, run):
    assert re.search(r"\x1b\[1;31mddprun: rank 0 \(pid \d+\) failed: exit code 3.*\x1b\[0m", failure_on_a_terminal(ddprun_bin))
    assert "\x1b[1;31m" not in failure_on_a_terminal(ddprun_bin, NO_COLOR="1")
    assert "\x1b" not in run([ddprun_bin, "--standalone", "--no-python", "sh", "-c", "exit 3"]).stderr


def test_version(ddprun_bin, run):
    shown = run([ddprun_bin, "--version"]).stdout
    protocol = re.search(r"kProtocolVersion = (\d+);", (ROOT / "rendezvous/protocol/message.hpp").read_text(encoding="utf-8"))[1]
    first, second, third = shown.splitlines()
    assert re.fullmatch(r"ddprun \d+\.\d+\.\d+( \([0-9a-f]{12}\+?\))?", first)
    assert second == f"protocol of agents: {protocol}"
    trainer = ddprun_bin.parent / "ddptrain"
    if trainer.exists():
        libtorch = re.search(r"LibTorch ([^)]+)\)", run([trainer, "--version"]).stdout)[1]
        assert third == f"ddptrain: built with LibTorch {libtorch}, {trainer.resolve()}"
    assert run([ddprun_bin, "-V"]).stdout == shown == run([ddprun_bin, "version"]).stdout


def test_version_reads_the_trainer_without_starting_it(ddprun_bin, run, tmp_path):
    alone = tmp_path / "bin" / "ddprun"
    alone.parent.mkdir()
    shutil.copy(ddprun_bin, alone)
    output = lambda: run([alone, "--version"], PATH="/nowhere").stdout.splitlines()[2]
    assert output() == "ddptrain: not found"
    trainer = alone.parent / "ddptrain"
    trainer.write_bytes(b"#!/bin/sh\ntouch started\n\0ddptrain was built with LibTorch 9.8.7\0more")
    trainer.chmod(0o755)
    assert output() == f"ddptrain: built with LibTorch 9.8.7, {trainer}"
    trainer.write_text("#!/bin/sh\ntouch started\n")
    assert output() == f"ddptrain: built with an unknown version of LibTorch, {trainer}"
    assert not (tmp_path / "started").exists()


def test_docs_list_exactly_the_options_of_help(ddprun_bin, run):
    shown = set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z-]+)", run([ddprun_bin, "--help-all"]).stdout, flags=re.MULTILINE))
    table = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(?:-\w`, `)?(--[a-z-]+)", table, flags=re.MULTILINE))
    assert documented == shown


def test_docs_contain_the_torchrun_option_table(ddprun_bin, run):
    done = run([ddprun_bin, "--torchrun-help"])
    assert done.returncode == 0 and done.stderr == ""
    page = (ROOT / "docs/torchrun.md").read_text(encoding="utf-8")
    table = page.split("<!-- ddprun --torchrun-help -->\n")[1].split("<!-- end -->")[0]
    assert table == done.stdout, "put the output of ddprun --torchrun-help between the two comments"
    for row in re.findall(r"^\| .*", table, flags=re.MULTILINE):
        assert re.match(r"^\| (?:`-\w`, )?`?[\w-]+`? +\| (same|better|no effect|ddprun) *\|", row), row


def test_docs_contain_the_agent_protocol():
    header = (ROOT / "rendezvous/protocol/message.hpp").read_text(encoding="utf-8")
    protocol = re.search(r"kProtocolVersion = (\d+);", header).group(1)
    assert f"protocol of agents: {protocol}\n" in (ROOT / "docs/install.md").read_text(encoding="utf-8")


def test_docs_list_every_exit_code():
    header = (ROOT / "common/base/exit_code.hpp").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"^\s*k\w+ = (\d+),", header, flags=re.MULTILINE)}
    assert len(codes) > 10
    table = (ROOT / "docs/exit-codes.md").read_text(encoding="utf-8")
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)}


@pytest.fixture
def torchrun_link(ddprun_bin, tmp_path) -> pathlib.Path:
    """Returns a symbolic link to ddprun with the name torchrun."""
    link = tmp_path / "bin" / "torchrun"
    link.parent.mkdir()
    link.symlink_to(ddprun_bin)
    return link


def test_the_name_torchrun_flattens_exit_codes(torchrun_link, ddprun_bin, run, tmp_path):
    job = ["--standalone", "--no-python", "sh", "-c", "exit 7"]
    assert run([ddprun_bin, *job]).returncode == 7
    assert run([torchrun_link, *job]).returncode == 1
    assert run([torchrun_link, "--standalone", "--no-python", "true"]).returncode == 0
    for parsed_not in (["--no-such-option", "x.py"], ["--max-restarts", "x", "x.py"], ["--start-method", "x", "x.py"], []):
        done = run([torchrun_link, *parsed_not])
        assert done.returncode == 2 and done.stderr.startswith("torchrun: "), parsed_not
    for refused in (["--nnodes", "0", "x.py"], ["--rdzv-conf", "a", "x.py"], ["missing.py"], ["--nproc-per-node", "x", "x.py"]):
        (tmp_path / "x.py").write_text("")
        assert run([torchrun_link, *refused]).returncode == 1, refused


def test_the_name_torchrun_prints_the_banner(torchrun_link, ddprun_bin, run):
    job = ["--standalone", "--nproc-per-node", "2", "--no-python", "sh", "-c", "echo threads $OMP_NUM_THREADS"]
    unset = {"OMP_NUM_THREADS": ""}
    done = run(["env", "-u", "OMP_NUM_THREADS", torchrun_link, *job], **unset)
    assert done.stdout.splitlines() == ["threads 1"] * 2
    banner = done.stderr.splitlines()
    assert len(banner) == 4 and "Setting OMP_NUM_THREADS environment variable for each process to be 1" in banner[2]
    assert all(re.match(r"W\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ torch/distributed/run.py\] ", line) for line in banner)
    assert run(["env", "-u", "OMP_NUM_THREADS", ddprun_bin, *job], **unset).stderr == ""
    assert run([torchrun_link, *job], OMP_NUM_THREADS="3").stderr == ""


def test_the_name_torchrun_has_no_subcommands(torchrun_link, run, tmp_path):
    (tmp_path / "report").write_text("import sys; print('script', sys.argv[1:])\n", encoding="utf-8")
    done = run([torchrun_link, "--standalone", "report", "--json"])
    assert (done.returncode, done.stdout) == (0, "script ['--json']\n"), done.stderr
    shown = run([torchrun_link, "--help"])
    assert shown.returncode == 0 and "--tee" in shown.stdout and "--dry-run" not in shown.stdout


def test_script_arguments_go_through_the_template(ddprun_bin, run, script):
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", "2", script, "$local_rank", "${local_rank}x", "$$", "$other", "${bad"])
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 2: {r} {r}x $ $other ${{bad" for r in (0, 1)]


def test_a_taken_port_is_reported_immediately_in_one_line(ddprun_bin, run, script, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run([ddprun_bin, "--master-port", port, "--run-dir", "run", script], TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert [p.name for p in tmp_path.iterdir()] == ["job.sh"]
    assert done.stderr == (f"ddprun: master port {port} is in use by another program; choose another port with --master-port, or a free one with --master-port 0 or "
                           "--standalone\n")


def test_a_port_of_another_job_is_reported_immediately(ddprun_bin, run):
    port = jobs.free_port()
    job = [str(ddprun_bin), "--master-port", str(port), "--no-python", "sh", "-c", "echo up; exec sleep 60"]
    with subprocess.Popen(job, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as first:
        try:
            assert first.stdout.readline() == b"up\n"
            done = run([ddprun_bin, "--master-port", port, "--no-python", "true"])
        finally:
            first.terminate()
    assert done.returncode == 2
    assert f"master port {port} is held by another ddprun on this machine" in done.stderr and done.stderr.count("\n") == 1


def test_unknown_rdzv_keys_are_a_warning(ddprun_bin, run, script):
    job = ["--standalone", "--rdzv-conf", "join_timeot=3", script]
    done = run([ddprun_bin, *job])
    assert done.returncode == 0
    assert done.stderr == "ddprun: warning: --rdzv-conf: unknown key 'join_timeot' has no effect. Did you mean 'join_timeout'?\n"
    assert run([ddprun_bin, "-q", *job]).stderr == ""


def test_a_taken_default_master_port_is_replaced(ddprun_bin, run):
    with socket.socket() as held:
        # Lets bind() succeed while connections of an earlier job are in TIME_WAIT.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("", 29500))
            held.listen()
        except OSError:
            pass  # another process has already bound the port, which has the same effect
        done = run([ddprun_bin, "--no-python", "sh", "-c", "echo $$MASTER_PORT"])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) not in (0, 29500)


def test_dry_run_shows_the_origin_of_values(ddprun_bin, run, script):
    done = run([ddprun_bin, "--dry-run", "--json", "--nproc-per-node", "2", script, "a b"], DDPRUN_MAX_RESTARTS="4", PET_ROLE="trainer")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["command"] == [str(script), "a b"]
    assert plan["values"]["nproc_per_node"] == {"value": "2", "source": "flag --nproc-per-node"}
    assert plan["values"]["max_restarts"] == {"value": "4", "source": "environment DDPRUN_MAX_RESTARTS"}
    assert plan["values"]["role"] == {"value": "trainer", "source": "environment PET_ROLE"}
    assert plan["environment"]["WORLD_SIZE"] == "2" and plan["environment"]["RANK"] == "0"
    text = run([ddprun_bin, "--dry-run", script]).stdout
    assert "Nothing is started" in text and "MASTER_PORT=29500" in text


def test_dry_run_starts_and_writes_nothing(ddprun_bin, run, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/sh\ntouch started\n", encoding="utf-8")
    (tmp_path / "job.sh").chmod(0o755)
    assert run([ddprun_bin, "--dry-run", "./job.sh"]).returncode == 0
    assert [p.name for p in tmp_path.iterdir()] == ["job.sh"]


@pytest.mark.parametrize("content,reason", [
    ("#!/opt/none/python3\n", "No such file or directory: its first line names '/opt/none/python3', which does not exist"),
    ("#!/bin/sh\r\ntrue\r\n", "No such file or directory: it has Windows newlines"),
    ("true\n", "Exec format error: it is neither a program for this machine nor a script that starts with #!"),
])
def test_an_existing_script_that_cannot_start_is_explained(ddprun_bin, run, script, content, reason):
    script.write_text(content, encoding="utf-8", newline="")
    done = run([ddprun_bin, "--no-python", script])
    assert done.returncode == 2, done.stderr
    assert f"cannot start '{script}': {reason}" in done.stderr


def test_the_usual_sender_of_a_signal_is_named(ddprun_bin, run):
    done = run([ddprun_bin, "--no-python", "sh", "-c", "kill -XFSZ $$$$"])
    assert done.returncode == 128 + signal.SIGXFSZ, done.stderr
    assert "SIGXFSZ" in done.stderr and "(ulimit -f)" in done.stderr


def test_a_program_gets_unchanged_arguments_and_leaves_no_files(ddprun_bin, run, script, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = run([ddprun_bin, "--standalone", "--nproc_per_node=2", "--", script, "--", "-v", "--nproc", "x=1"], TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of 2: -- -v --nproc x=1" for r in (0, 1)]
    assert done.stderr == ""
    assert list(temporary.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.sh", "tmp"]


def test_a_failed_program_leaves_its_report_in_the_temporary_folder(ddprun_bin, run, tmp_path):
    done = run([ddprun_bin, "--standalone", "--no-python", "sh", "-c", "echo why >&2; exit 3"], TMPDIR=str(tmp_path))
    assert done.returncode == 3
    assert "why" in done.stderr and "exit code 3" in done.stderr
    (report,) = tmp_path.glob("torchelastic_*/*/report.json")
    assert str(report) in done.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["rounds"][0]["first_cause"]["stderr_tail"] == ["why"]


def test_report_renders_a_run(ddprun_bin, run, run_dir):
    job = ["--standalone", "--max-restarts", "1", "--run-dir", run_dir, "--no-python", "sh", "-c", "echo why >&2; kill -SEGV $$$$"]
    assert run([ddprun_bin, *job]).returncode == 139
    assert run([ddprun_bin, *job]).returncode == 139
    done = run([ddprun_bin, "report", run_dir])
    assert done.returncode == 0, done.stderr
    for part in ("signal 11 (SIGSEGV)", "| why", "round 3", "start 2 on", "exit code 139"):
        assert part in done.stdout, done.stdout
    report = json.loads(run([ddprun_bin, "report", run_dir, "--json"]).stdout)
    assert [r["round"] for r in report["rounds"]] == [0, 1, 2, 3]
    assert [r["invocation"] for r in report["rounds"]] == [0, 0, 1, 1]
    assert (run_dir / "logs/round-003/rank-00000/stderr.log").read_text() == "why\n"


def test_report_without_a_run(ddprun_bin, run, tmp_path):
    done = run([ddprun_bin, "report", tmp_path])
    assert done.returncode == 2 and "No such file" in done.stderr
    (tmp_path / "report.json").write_text("[]")
    assert run([ddprun_bin, "report", tmp_path]).returncode == 2


def test_validate_prints_a_config_that_parses_again(ddprun_bin, run, tmp_path):
    config = write_config(tmp_path)
    done = run([ddprun_bin, "validate", config, "epochs=7"])
    assert done.returncode == 0, done.stderr
    resolved = json.loads(done.stdout)
    assert resolved["epochs"] == 7 and resolved["optimizer"]["type"] == "adamw"
    again = tmp_path / "again.json"
    again.write_text(done.stdout, encoding="utf-8")
    assert run([ddprun_bin, "validate", again]).stdout == done.stdout
    assert run([ddprun_bin, "validate", config, "epocs=7"]).returncode == 2


def test_config_files_are_checked_before_the_start(ddprun_bin, ddptrain_bin, run, tmp_path):
    absent = tmp_path / "fashion"
    config = write_config(tmp_path, data={"type": "idx", "dir": str(absent)})
    done = run([ddprun_bin, "validate", config])
    assert done.returncode == 2 and json.loads(done.stdout)["data"]["dir"] == str(absent)
    assert f"\n  data.dir: {absent} does not exist" in done.stderr, done.stderr
    shown = run([ddprun_bin, "--dry-run", "--run-dir", tmp_path / "run", config])
    assert shown.returncode == 2 and f"\n  data.dir: {absent} does not exist" in shown.stderr, shown.stderr
    assert not (tmp_path / "run").exists()


def test_json_console_is_json(ddprun_bin, run, script):
    done = run([ddprun_bin, "--json", "--standalone", "--nproc-per-node", "2", script])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [e["event"] for e in events]
    assert names[0] == "run_started" and names[-1] == "run_ended" and names.count("worker_ended") == 2
    assert {e["line"] for e in events if e["event"] == "output"} == {"rank 0 of 2: ", "rank 1 of 2: "}


def test_a_closed_console_is_not_an_error(ddprun_bin, tmp_path):
    command = [str(ddprun_bin), "--standalone", "--no-python", "sh", "-c", "echo a; echo b >&2; touch done"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as job:
        job.stdout.close()
        job.stderr.close()
        assert job.wait(30) == 0
    assert (tmp_path / "done").exists()


def test_the_terminal_stays_in_blocking_mode(ddprun_bin, script):
    ours, theirs = pty.openpty()
    subprocess.run([str(ddprun_bin), "--standalone", str(script)], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, check=True, timeout=30)
    assert os.get_blocking(theirs)
    assert os.read(ours, 4096) == b"rank 0 of 1: \r\n"
    os.close(ours)
    os.close(theirs)


def test_large_output_is_complete_in_bounded_memory(ddprun_bin, run, run_dir):
    """Two ranks write 50 MB of lines each at the same time. All lines must reach the log files and the pipe."""
    line = "x" * 199
    job = f'i=0; yes "$RANK {line}" | head -n 250000'
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", "2", "--run-dir", run_dir, "--no-python", "sh", "-c", job], timeout=120)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        log = run_dir / f"logs/round-000/rank-{rank:05}/stdout.log"
        assert log.stat().st_size == 250000 * (len(line) + 3)
    # ddprun shows a line in two parts if the worker pauses for 100 ms within the line. A busy machine causes a few such pauses.
    other = [shown for shown in done.stdout.splitlines() if shown not in (f"0 {line}", f"1 {line}") and "not shown here" not in shown]
    assert len(other) <= 20


def test_a_start_loads_only_the_c_library(ddprun_bin):
    """Each dynamic library slows down every start, so ddprun may load only the C library. For example, libm alone took 0.08
    ms."""
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    output = subprocess.run(["readelf", "-dW", ddprun_bin], capture_output=True, text=True, check=True, timeout=60).stdout
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", output)
    assert {name.split(".")[0] for name in libraries} <= {"libc", "ld-linux-x86-64", "ld-linux-aarch64"}, libraries


def test_a_launcher_option_after_the_script_is_named(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    done = run([ddprun_bin, "train.py", "--nproc-per-node", "2"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 2
    assert done.stderr.endswith("ddprun: --nproc-per-node is placed after the script, so the script received it. Place ddprun's options before the script: "
                                "ddprun --nproc-per-node ... SCRIPT\n"), done.stderr
    (tmp_path / "train.py").write_text("import sys\nsys.exit(3)\n")
    assert "is placed after" not in run([ddprun_bin, "train.py", "--nproc-per-node", "2"], PYTHON_EXEC=sys.executable).stderr


def test_validate_explains_a_folder_or_a_script(ddprun_bin, run, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/train.json").write_text("{}")
    done = run([ddprun_bin, "run"], PYTHON_EXEC=sys.executable)
    assert (done.returncode, done.stderr) == (2, "ddprun: run is a folder without a __main__.py: expected a script or a train.json. "
                                                 "Did you mean run/train.json?\n")
    (tmp_path / "run/__main__.py").write_text("print('main')\n")
    assert run([ddprun_bin, "run"], PYTHON_EXEC=sys.executable).stdout == "main\n"
    done = run([ddprun_bin, "validate", "mine.py"])
    assert done.returncode == 2 and "mine.py is a script, but ddprun validate checks train.json files; to see how the script would be started, use ddprun --dry-run mine.py" in done.stderr


def test_a_script_gets_shell_pipes_and_may_come_from_stdin(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text("import sys\nprint('config:', open(sys.argv[1]).read().strip(), open(sys.argv[2].split('=')[1]).read().strip())\n")
    line = f"'{ddprun_bin}' train.py <(echo lr=3) --more=<(echo deep) && echo 'print(5)' | '{ddprun_bin}' -"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PYTHON_EXEC": sys.executable})
    assert (done.returncode, done.stdout) == (0, "config: lr=3 deep\n5\n"), done.stderr
