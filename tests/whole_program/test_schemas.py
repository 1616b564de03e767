"""Tests that docs/schemas describe every line of metrics.jsonl and of --json. The output of real jobs of each kind must match
the schemas, and the schemas must contain all events in the sources."""

import json
import pathlib
import re
import signal

import jobs
import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCHEMAS = {name: json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")) for name in ("metrics", "events")}


def check(name: str, lines: list[dict]) -> set[str]:
    """Checks every line against the schema of its event. Returns the names of the events that occurred."""
    seen = set()
    for line in lines:
        assert line["event"] in SCHEMAS[name]["$defs"], f"{line} matches no event in docs/schemas/{name}.schema.json"
        # The line is validated against the schema of its event instead of oneOf, because the error message is then specific.
        own = {**SCHEMAS[name], "oneOf": [{"$ref": f"#/$defs/{line['event']}"}]}
        problems = [problem.message for of_one in jsonschema.Draft202012Validator(own).iter_errors(line) for problem in of_one.context or [of_one]]
        assert not problems, f"{line}: {problems}"
        seen.add(line["event"])
    jsonschema.validate(lines[-1], SCHEMAS[name])
    return seen


def events(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    return jobs.write_config(folder / "train.json", jobs.config(jobs.write_small_dataset(folder / "data")))


def test_the_schemas_are_valid_and_describe_every_field():
    def bare(node, at=""):
        found = []
        for name, field in node.get("properties", {}).items():
            if not {"description", "$ref", "const"} & field.keys():
                found.append(f"{at}/{name}")
            found += bare(field, f"{at}/{name}")
        return found

    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        version = {"metrics": 6, "events": 1}[name]
        assert schema["$id"] == f"urn:ddprun:{name}:{version}" and schema["title"].endswith(f"version {version}")
        listed = {entry["$ref"].removeprefix("#/$defs/") for entry in schema["oneOf"]}
        assert listed == schema["$defs"].keys() - {"time_ns", "failure"}
        for event, definition in schema["$defs"].items():
            if "properties" in definition:
                assert definition["additionalProperties"] is not True and definition["description"], event
                assert bare(definition, event) == []


def test_every_event_of_the_sources_is_in_the_schemas():
    def named(file: str, pattern: str) -> set[str]:
        return set(re.findall(pattern, (ROOT / file).read_text(encoding="utf-8")))

    written = named("trainer/loop/run_log.cpp", r'write\(\s*"(\w+)"') | {"restart", "resume"}
    assert len(written) > 8 and written == SCHEMAS["metrics"]["$defs"].keys() - {"time_ns"}
    emitted = named("launcher/events/event_json.cpp", r'(?:"event", |event\()"(\w+)"') | named("launcher/report/report_summary.cpp", r'"event", "(\w+)"')
    emitted |= named("launcher/commands/dry_run.cpp", r'"event", "(\w+)"') | {"cut_off"}
    emitted |= {f"node_{word}" for word in named("launcher/events/node_notice.cpp", r'return "([a-z_]+)";') - {"unknown"}}
    assert len(emitted) > 30 and emitted == SCHEMAS["events"]["$defs"].keys() - {"time_ns", "failure"}
    causes = named("common/failure/cause.cpp", r'[{ ]"([a-z_]+)"[,}]')
    assert set(SCHEMAS["events"]["$defs"]["failure"]["properties"]["cause"]["enum"]) == causes


def test_a_finished_job_started_again(ddprun_bin, config, tmp_path):
    first = jobs.run([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config, "epochs=1"])
    assert first.returncode == 0, first.stderr
    assert check("events", events(first.stdout)) >= {"run_started", "round_started", "worker_started", "hello", "phase", "progress", "evaluation",
                                                     "checkpoint", "worker_ended", "run_ended"}
    again = jobs.run([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config, "epochs=1"])
    assert check("events", events(again.stdout)) == {"already_done"}
    more = jobs.run([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config, "checkpoint.every=auto",
                     "checkpoint.every_steps=0"])
    assert more.returncode == 0 and check("events", events(more.stdout)), more.stderr
    assert check("metrics", jobs.metrics(tmp_path / "run")) >= {"step", "eval", "checkpoint", "resume", "end"}


@pytest.mark.parametrize("recovery", ["live", "checkpoint"])
def test_a_job_with_a_lost_worker(ddprun_bin, config, tmp_path, recovery):
    done = jobs.run([ddprun_bin, "--json", "--nproc-per-node", 2, "--recovery", recovery, "--chaos", "kill rank=1 step=17", "--run-dir", tmp_path / "run",
                     config])
    assert done.returncode == 0, done.stderr
    expected = {"live": "regrouped", "checkpoint": "round_failed"}[recovery]
    assert {"round_failed", expected} <= check("events", events(done.stdout))
    assert {"live": "regroup", "checkpoint": "restart"}[recovery] in check("metrics", jobs.metrics(tmp_path / "run"))


def test_a_diverged_job_has_null_for_nan(ddprun_bin, config, tmp_path):
    done = jobs.run([ddprun_bin, "--json", "--nproc-per-node", 2, "--chaos", "nan step=5", "--run-dir", tmp_path / "run", config])
    assert done.returncode == 88, done.stderr
    assert {"error", "round_failed", "run_ended"} <= check("events", events(done.stdout))
    check("metrics", jobs.metrics(tmp_path / "run"))


def test_a_stopped_job(ddprun_bin, config, tmp_path):
    running = jobs.start([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config, "epochs=10000"])
    lines = [next(line for line in running.stdout if '"progress"' in line)]
    running.send_signal(signal.SIGTERM)
    lines += running.stdout.readlines()
    assert running.wait(60) == 85, running.stderr.read()
    assert {"stop_requested", "run_ended"} <= check("events", events("".join(lines)))
    check("metrics", jobs.metrics(tmp_path / "run"))


def test_a_job_of_two_nodes_with_a_lost_node(nodes, script):
    job = script("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 3; sleep 60")
    common = ["--json", "--nnodes", "1:2", "--max-restarts", "1", "--rdzv-conf", "last_call_timeout=0.5", "--master-addr", "127.0.0.1", "--master-port",
              jobs.free_port()]
    nodes.start(*common, "--node-rank", "0", job)
    nodes.until_printed(0, "node_waiting|node_joined")
    nodes.start(*common, "--node-rank", "1", job)
    assert nodes.wait() == [0, 0], nodes.all_text()
    lines = [line for number in range(2) for line in nodes.text(number).splitlines() if line.startswith("{")]
    seen = check("events", events("\n".join(lines)))
    assert {"node_waiting", "node_joined", "node_released", "node_following", "round_started", "worker_ended", "run_ended"} <= seen, seen


def test_a_failing_script_with_output(ddprun_bin, script):
    body = '[ "$RANK" = 0 ] && exec sleep 60; echo printed; echo warned >&2; exit 85'
    done = jobs.run([ddprun_bin, "--json", "--standalone", "--nproc-per-node", 2, "--no-python", script(body)])
    assert done.returncode == 85, done.stderr
    lines = events(done.stdout)
    assert {"output", "round_failed", "worker_ended"} <= check("events", lines)
    # From this field users can find the origin of an exit code, as described in docs/exit-codes.md.
    (failed,) = (line for line in lines if line["event"] == "round_failed")
    assert failed["first_cause"]["cause"] == "exit_code" and failed["first_cause"]["exit_code"] == 85


def test_scripts_that_report_steps_in_two_versions(ddprun_bin, tmp_path):
    (tmp_path / "steps.py").write_text("import os, ddprun\nif os.environ['RANK'] == '1': ddprun._worker_channel.PROTOCOL = (99, 0)\n"
                                       "ddprun.step(1, loss=0.5, samples=4, total=1, accuracy=float('nan'), width=3)\n"
                                       "ddprun.saved('here', step=1)\n")
    done = jobs.run([ddprun_bin, "--json", "--standalone", "--nproc-per-node", 2, tmp_path / "steps.py"], PYTHONPATH=str(ROOT / "python"))
    assert done.returncode == 0, done.stderr
    lines = events(done.stdout)
    assert {"hello", "progress", "checkpoint", "helper_ignored"} <= check("events", lines)
    assert {"accuracy": None, "width": 3} in [line.get("figures") for line in lines]


def test_plans_and_refusals(ddprun_bin, config, tmp_path):
    plan = jobs.run([ddprun_bin, "--json", "--dry-run", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config])
    assert check("events", events(plan.stdout)) == {"plan"}
    refused = jobs.run([ddprun_bin, "--json", "--nproc-per-node", "none", config])
    assert refused.returncode == 2 and check("events", events(refused.stdout)) == {"usage_error"}
