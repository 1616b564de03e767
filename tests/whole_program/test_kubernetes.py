"""Tests of `ddprun submit --k8s` and of the examples in configs/kubernetes. No test uses a cluster. kubernetes_objects.py
contains the schemas, and simulates the kubelet and the controllers. One test starts the command of a manifest in the same way
as the pods of a cluster: in network namespaces, without root, and with the mounts of the manifest."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

import jobs
import jsonschema
import kubernetes_objects as k8s
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "configs" / "kubernetes"
SIZES = {"fixed": ["--nodes", "4"], "elastic": ["--nodes", "2:4"], "spot": ["--nodes", "1:4", "--spot"]}
# The program of each example. All kinds of pods run both a script and a train.json.
PROGRAMS = {"fixed": ["../synthetic.json"], "elastic": ["train.py", "--lr", "0.1"], "spot": ["../synthetic.json", "epochs=3"]}
KINDS = {"job": [], "jobset": ["--kind", "jobset"], "trainjob": ["--kind", "trainjob"], "kueue": ["--queue", "team-a"]}
RUNTIMES = {"runtime": [], "runtime-spot": ["--spot"]}
GOOD = "5f0c6c1e9a47b83d20d1e4f7a95b3c68"


def commands_of_examples() -> dict[str, list[str]]:
    """Returns the arguments of `ddprun submit` for each file in configs/kubernetes."""
    found = {f"{name}.yaml": ["--k8s", "--kind", "runtime", *words] for name, words in RUNTIMES.items()}
    for (kind, words), size in itertools.product(KINDS.items(), SIZES):
        found[f"{kind}-{size}.yaml"] = ["--k8s", "--image", "registry.example.com/train:1", "--name", "train", *words, *SIZES[size], "--gpus", "8", *PROGRAMS[size]]
    return found


COMMANDS = commands_of_examples()


def submit(ddprun_bin, *words, cwd=EXAMPLES, **environment) -> subprocess.CompletedProcess:
    return jobs.run([ddprun_bin, "submit", *words], cwd=cwd, **environment)


def printed(ddprun_bin, *words, program: list[str]) -> str:
    done = submit(ddprun_bin, *words, "--dry-run", *program)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list[dict]:
    return list(yaml.safe_load_all(text))


def dry_run(words: list[str]) -> list[str]:
    """Inserts --dry-run after --k8s, because later words may belong to the program."""
    return [words[0], "--dry-run", *words[1:]]


@pytest.fixture(scope="module")
def runtimes(ddprun_bin) -> dict[str, dict]:
    found = {}
    for name in RUNTIMES:
        (runtime,) = documents((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
        found[runtime["metadata"]["name"]] = runtime
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_the_output_of_submit(ddprun_bin, name):
    """The files must be equal to the output of the command. To write the files again, run the tests with
    DDPRUN_REGENERATE=1."""
    done = submit(ddprun_bin, *dry_run(COMMANDS[name]))
    assert done.returncode == 0, done.stderr
    if os.environ.get("DDPRUN_REGENERATE"):
        (EXAMPLES / name).write_text(done.stdout, encoding="utf-8")
    assert (EXAMPLES / name).read_text(encoding="utf-8") == done.stdout
    command = shlex.split(done.stdout.split("\n")[0].removeprefix("# Written by: "))
    assert command[:2] == ["ddprun", "submit"]
    again = submit(ddprun_bin, *dry_run(command[2:]))
    assert again.stdout == done.stdout, "the first line of the file is the command that writes it"


def test_each_example_is_tested():
    assert {file.name for file in EXAMPLES.glob("*.yaml")} == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_match_the_schemas(name):
    for document in documents((EXAMPLES / name).read_text(encoding="utf-8")):
        jsonschema.Draft202012Validator.check_schema(k8s.SCHEMAS[document["kind"]])
        problems = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in
                    jsonschema.Draft202012Validator(k8s.SCHEMAS[document["kind"]]).iter_errors(document)]
        assert not problems, f"{name}: {document['kind']}: {problems}"


def test_the_schemas_refuse_unknown_fields():
    (service, *_) = documents((EXAMPLES / "job-fixed.yaml").read_text(encoding="utf-8"))
    service["spec"]["clusterIp"] = "None"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(service, k8s.SCHEMAS["Service"])


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("runtime")])
def test_the_pods_of_the_examples(runtimes, name):
    objects = documents((EXAMPLES / name).read_text(encoding="utf-8"))
    by_kind = {each["kind"]: each for each in objects}
    job_name, spec = k8s.job_of(objects, runtimes)
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    command = container["command"]

    # The following lines check the size and the name of each pod.
    size = name.removesuffix(".yaml").rsplit("-", 1)[1]
    assert command[command.index("--nnodes") + 1] == SIZES[size][1] and spec["completions"] == spec["parallelism"] == 4
    assert spec["completionMode"] == "Indexed" and pod["restartPolicy"] == "Never"
    if "Job" in by_kind:
        service = by_kind["Service"]
        assert pod["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job_name}
    elif "JobSet" in by_kind:
        assert by_kind["JobSet"]["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    pod_labels = {"batch.kubernetes.io/job-name": job_name, "jobset.sigs.k8s.io/jobset-name": "train"}
    policy = by_kind["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod_labels.items() and policy["ingress"] == [{"from": [{"podSelector": policy["podSelector"]}]}]

    # The following lines check stops and restarts.
    assert float(command[command.index("--shutdown-timeout") + 1]) + 5 <= pod["terminationGracePeriodSeconds"]
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 1}]} and spec["backoffLimit"] >= 4
    assert ("affinity" in pod) == (size == "spot")

    # The following lines check security settings.
    assert k8s.violations_of_restricted(pod) == []
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False

    # Each volume is mounted. The token is readable by root and the pod's group only, and cannot be changed.
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts.keys() == volumes.keys() and len(mounts) == len(container["volumeMounts"])
    assert volumes["token"]["secret"] == {"secretName": "train-token", "defaultMode": 0o440} and mounts["token"]["readOnly"] is True
    assert command[command.index("--token-file") + 1] == mounts["token"]["mountPath"] + "/token" and pod["securityContext"]["fsGroup"]
    assert mounts["shm"]["mountPath"] == "/dev/shm" and volumes["shm"]["emptyDir"]["medium"] == "Memory"
    claim = by_kind["PersistentVolumeClaim"]
    assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"] and claim["spec"]["accessModes"] == ["ReadWriteMany"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    for path in (command[command.index("--run-dir") + 1], variables["XDG_STATE_HOME"]):
        assert path.startswith(mounts["runs"]["mountPath"] + "/")
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert limits["nvidia.com/gpu"] == requests["nvidia.com/gpu"] == int(command[command.index("--nproc-per-node") + 1]) == 8
    assert limits["memory"] == requests["memory"] and "cpu" in requests

    # the program
    config = next((word for word in command if word.endswith(".json")), None)
    if config:
        assert volumes["config"]["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
        assert config == f"{mounts['config']['mountPath']}/synthetic.json"
        assert by_kind["ConfigMap"]["data"]["synthetic.json"] == (ROOT / "configs" / "synthetic.json").read_text(encoding="utf-8")
    else:
        assert command[-3:] == ["train.py", "--lr", "0.1"]


@pytest.mark.parametrize("kind, size", list(itertools.product(KINDS, SIZES)))
def test_labels_of_kueue(kind, size):
    (top,) = (each for each in documents((EXAMPLES / f"{kind}-{size}.yaml").read_text(encoding="utf-8")) if each["kind"] in ("Job", "JobSet", "TrainJob"))
    assert top["metadata"].get("labels", {}) == ({"kueue.x-k8s.io/queue-name": "team-a"} if kind == "kueue" else {})
    minimum = SIZES[size][1].partition(":")[0]
    partial = {"kueue.x-k8s.io/job-min-parallelism": minimum, "kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
    assert top["metadata"].get("annotations", {}) == (partial if kind == "kueue" and size != "fixed" else {})
    assert "suspend" not in top["spec"], "a second kubectl apply would stop the job"


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_other_kinds_in_a_queue(ddprun_bin, kind):
    text = printed(ddprun_bin, "--k8s", "--kind", kind, "--image", "a", "--queue", "q", "--nodes", "2:4", program=["train.py"])
    assert documents(text)[-1]["metadata"] == {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    assert 'patch workload NAME --type merge --patch \'{"spec":{"active":false}}\'' in text


# The action of a Job after each exit code of ddprun. The table contains the exit codes in docs/exit-codes.md, and examples of
# codes that workers choose themselves.
ACTIONS = {1: "Count", 2: "FailJob", 79: "Count", 80: "Count", 81: "Count", 82: "Count", 83: "FailJob", 84: "FailJob", 85: "Ignore", 86: "Ignore",
           87: "FailJob", 88: "FailJob", 89: "Count", 90: "Count", 91: "Count", 129: "Count", 130: "Count", 134: "Count", 137: "Count", 139: "Count",
           143: "Ignore", 255: "Count"}


def test_every_exit_code_has_an_action():
    """Each code of the table in docs/exit-codes.md and of exit_code.hpp must be in ACTIONS."""
    table = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8").split("## ")[0]
    listed = {int(code) for row in re.findall(r"^\| ([\d, to]+) \|", table, re.M) for code in re.findall(r"\d+", row)}
    header = (ROOT / "common" / "base" / "exit_code.hpp").read_text(encoding="utf-8")
    listed |= {int(code) for code in re.findall(r"k\w+ = (\d+)", header)}
    assert len(listed) > 15 and listed - {0} <= ACTIONS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_pass_through_the_failure_policy(runtimes, name):
    objects = documents((EXAMPLES / name).read_text(encoding="utf-8"))
    if "runtime" in name:
        spec = objects[0]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    else:
        _, spec = k8s.job_of(objects, runtimes)
    policy = spec["podFailurePolicy"]
    assert {code: k8s.failure_action(policy, code) for code in ACTIONS} == ACTIONS
    # An evicted pod is always replaced, and its failure is never counted.
    assert {k8s.failure_action(policy, code, ("DisruptionTarget",)) for code in ACTIONS} == {"Ignore"}
    for rule in policy["rules"]:
        assert "onExitCodes" not in rule or rule["onExitCodes"]["values"] == sorted(rule["onExitCodes"]["values"])


def test_the_docs_show_the_same_rules():
    _, spec = k8s.job_of(documents((EXAMPLES / "job-fixed.yaml").read_text(encoding="utf-8")), {})
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"    podFailurePolicy:\n(?:    .*\n)+", page)
    assert yaml.safe_load(shown) == {"podFailurePolicy": spec["podFailurePolicy"]}


def test_the_docs_show_the_fields_for_the_token(runtimes):
    """docs/kubernetes.md must show the same fields for the token as the manifests."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    token, probe = (yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S))
    _, spec = k8s.job_of(documents((EXAMPLES / "job-fixed.yaml").read_text(encoding="utf-8")), runtimes)
    pod = spec["template"]["spec"]
    assert token["spec"]["volumes"] == [each for each in pod["volumes"] if each["name"] == "token"]
    assert token["spec"]["containers"][0]["volumeMounts"] == [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "token"]
    assert token["spec"]["securityContext"].items() <= pod["securityContext"].items()
    assert probe["livenessProbe"]["exec"]["command"] == ["ddprun", "status", "--healthy"]


WORDS = ["two words", "it's", 'a "quote"', "line\nbreak\n", "tab\there", "$(HOME)", "$HOME", "kill $$", "$$(x)", "cost: 5$", "key: value", "a #b", "- item", "-",
         "--flag=[1,2]", "no", "~", "0x1f", "1e3", "12:30", "null", "größe", "\U0001f680", "\u2028x", "\x85", "\ufeff", "{}", "*a", "&a", "!t", "%d", "@x", "`x`", "\\n", ""]


@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob"])
def test_arguments_reach_the_program_unchanged(ddprun_bin, runtimes, kind):
    text = printed(ddprun_bin, "--k8s", "--kind", kind, "--image", "a:1", program=["--", "--no-python", "./program", *WORDS])
    _, spec = k8s.job_of(documents(text), runtimes)
    (container,) = spec["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    words = [k8s.kubelet_word(word, variables) for word in container["command"]]
    assert words[-len(WORDS) - 2:] == ["--no-python", "./program", *WORDS]


def test_no_secret_is_printed_or_passed_on(ddprun_bin, tmp_path):
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text("#!/bin/sh\nenv > environment\ncat \"$3\"\n")
    kubectl.chmod(0o755)
    done = submit(ddprun_bin, "--k8s", "--image", "a", "train.py", cwd=tmp_path, DDPRUN_TOKEN=GOOD, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert "secretName: train-token" in done.stdout
    for text in (done.stdout, done.stderr, (tmp_path / "train.yaml").read_text(), (tmp_path / "environment").read_text()):
        assert GOOD not in text
    dry = submit(ddprun_bin, "--k8s", "--dry-run", "--image", "a", "train.py", DDPRUN_TOKEN=GOOD)
    assert dry.returncode == 0 and GOOD not in dry.stdout + dry.stderr


KUBECTL = {"works": "echo \"job.batch/train created\"", "fails": "echo 'error: the server is away' >&2; exit 3"}


@pytest.mark.parametrize("kubectl", ["works", "fails", "missing"])
def test_submit_applies_the_manifests(ddprun_bin, tmp_path, kubectl):
    """If kubectl is missing or fails, one line explains the problem, and the manifests are kept."""
    (tmp_path / "bin").mkdir()
    if kubectl in KUBECTL:
        (tmp_path / "bin" / "kubectl").write_text(f"#!/bin/sh\necho \"$@\" > called\n{KUBECTL[kubectl]}\n")
        (tmp_path / "bin" / "kubectl").chmod(0o755)
    words = ["--k8s", "--image", "a:1", "--name", "exp", "train.py"]
    path = f"{tmp_path}/bin" + (f":{os.environ['PATH']}" if kubectl != "missing" else "")
    done = submit(ddprun_bin, *words, cwd=tmp_path, PATH=path)
    assert (tmp_path / "exp.yaml").read_text() == submit(ddprun_bin, *dry_run(words)).stdout
    assert done.stderr.count("\n") == 1 and "exp.yaml" in done.stderr
    if kubectl == "works":
        assert done.returncode == 0 and done.stdout == "job.batch/train created\n"
        assert (tmp_path / "called").read_text() == "apply -f exp.yaml\n"
    else:
        assert done.returncode == 2 and done.stdout == ""
        assert ("kubectl is not on PATH" if kubectl == "missing" else "kubectl apply -f exp.yaml ended with exit code 3: error: the server is away") in done.stderr


def test_a_file_of_the_user_is_not_replaced(ddprun_bin, tmp_path):
    (tmp_path / "train.yaml").write_text("mine\n")
    done = submit(ddprun_bin, "--k8s", "--image", "a", "train.py", cwd=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 2 and "has a different content" in done.stderr and (tmp_path / "train.yaml").read_text() == "mine\n"


@pytest.mark.parametrize("words, message", [
    (["train.py"], "the first argument must name the scheduler: --slurm or --k8s"),
    (["--k8s", "train.py"], "--image: expected the container image"),
    (["--k8s", "--image", "a", "--lr", "1"], "unexpected argument '--lr'"),
    (["--k8s", "--image", "a", "missing.json"], "does not exist here"),
    (["--k8s", "--image", "a", "--", "--nnodes", "2", "train.py"], "use --nodes of ddprun submit"),
])
def test_mistakes(ddprun_bin, tmp_path, words, message):
    done = submit(ddprun_bin, *words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and done.stdout == "" and list(tmp_path.iterdir()) == []


# These kubectl commands parse an object with the types of their Kubernetes version, and print it again. They need no server.
TYPED = {"Job": ["set", "serviceaccount", "--local", "-f", "-", "typed", "-o", "json"], "Service": ["set", "selector", "--local", "-f", "-", "a=b", "-o", "json"]}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith(("job-", "kueue-"))])
def test_kubectl_knows_every_field(name):
    """kubectl drops fields that its types do not have. So each field of the Job and the Service must be in its output."""
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")

    def missing(given, kept, at=""):
        if isinstance(given, dict):
            return [problem for key, value in given.items() for problem in ([f"{at}/{key}"] if key not in kept else missing(value, kept[key], f"{at}/{key}"))]
        if isinstance(given, list):
            return [problem for i, value in enumerate(given) for problem in missing(value, kept[i], f"{at}/{i}")]
        return [] if str(given) == str(kept) else [f"{at}: {given} became {kept}"]

    checked = 0
    for document in documents((EXAMPLES / name).read_text(encoding="utf-8")):
        if document["kind"] not in TYPED:
            continue
        done = subprocess.run(["kubectl", *TYPED[document["kind"]]], input=json.dumps(document), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        if document["kind"] == "Service":
            del document["spec"]["selector"]  # the command writes a different selector
        assert missing(document, json.loads(done.stdout)) == []
        checked += 1
    assert checked == 2


# Starts a command as the kubelet starts a container. $1 is the folder of the volume, $2 is the token file, and the other
# arguments are the command. The root folder is new. It contains the folders of this machine, /secrets, /runs and an empty
# /tmp.
POD = """
set -e
root=/mnt; mount -t tmpfs root $root
for path in /*; do
  case $path in /mnt|/secrets|/runs|/tmp) continue;; esac
  if [ -L "$path" ]; then cp -a "$path" $root; elif [ -d "$path" ]; then mkdir "$root$path"; mount --rbind "$path" "$root$path"; fi
done
mkdir $root/secrets $root/runs; mkdir -m 1777 $root/tmp
mount -t tmpfs secret $root/secrets
mkdir $root/secrets/..data
cp "$2" $root/secrets/..data/token; chown 0:1000 $root/secrets/..data/token; chmod 0440 $root/secrets/..data/token
ln -s ..data/token $root/secrets/token; mount -o remount,ro $root/secrets
mount --bind "$1" $root/runs
shift 2
exec chroot $root setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --bounding-set=-all -- "$@"
"""


class Pods:
    """Starts the pods of a manifest on private hosts, as a cluster would start them: host names of an indexed Job with a
    headless Service, the index in the environment, a user without rights and without an entry in /etc/passwd, the Secret
    mounted read-only, and a shared volume, in which the program is /runs/job.sh."""

    def __init__(self, ddprun_bin, hosts, folder: pathlib.Path, nodes: str, program: str, *arguments: str):
        text = printed(ddprun_bin, "--k8s", "--image", "a", "--nodes", nodes, program=["--", "--no-python", "/runs/job.sh", *arguments])
        self.hosts, self.folder, self.ddprun_bin = hosts, folder, ddprun_bin
        self.job, spec = k8s.job_of(documents(text), {})
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        self.variables = {each["name"]: each["value"] for each in container["env"]}
        self.command = [k8s.kubelet_word(word, self.variables) for word in container["command"]]
        self.domain = f"{pod['subdomain']}.default.svc.cluster.local"
        self.volume = folder / "volume"
        self.volume.mkdir()
        os.chown(self.volume, 0, pod["securityContext"]["fsGroup"])
        self.volume.chmod(0o2775)
        (self.volume / "job.sh").write_text(f"#!/bin/sh\n{program}\n")
        (self.volume / "job.sh").chmod(0o755)

    def name(self, index: int) -> str:
        return f"{self.job}-{index}.{self.domain}"

    def start(self, index: int) -> subprocess.Popen:
        names = {f"{self.name(i)} {self.job}-{i}": self.hosts.address(i) for i in range(self.hosts.count)}
        environment = {**self.variables, "PATH": f"{self.ddprun_bin.parent}:/usr/sbin:/usr/bin:/sbin:/bin", "JOB_COMPLETION_INDEX": str(index)}
        words = self.hosts.on(index, ["sh", "-c", f"hostname {self.job}-{index}\n{POD}", "sh", str(self.volume), str(self.hosts.token), *self.command], names)
        with open(self.hosts.output(len(self.hosts.agents)), "wb") as log:
            self.hosts.agents.append(subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))
        return self.hosts.agents[-1]  # the returned process is killed at the end of the test


def test_the_command_of_a_manifest_runs_in_pods(ddprun_bin, make_hosts, tmp_path):
    # An agent creates its socket 0.1 s after its start.
    pods = Pods(ddprun_bin, make_hosts(2), tmp_path, "2", 'echo "$RANK $WORLD_SIZE $MASTER_ADDR $1 $(id -u) ${DDPRUN_TOKEN-unset}" > /runs/rank-$RANK\n'
                "for i in $(seq 200); do ddprun status --healthy > /runs/health-$RANK 2>&1 && break; sleep 0.05; done\n"
                "echo $? >> /runs/health-$RANK", "$(HOME) $$")
    running = [pods.start(index) for index in range(2)]
    codes = [process.wait(timeout=120) for process in running]
    output = pods.hosts.all_text()
    assert codes == [0, 0], output
    for rank in range(2):
        assert (pods.volume / f"rank-{rank}").read_text() == f"{rank} 2 {pods.name(0)} $(HOME) $ 1000 unset\n", output
        assert (pods.volume / f"health-{rank}").read_text() == "0\n", output
    assert (pods.volume / "state" / "ddprun" / "nodes").is_dir()
    assert (pods.volume / "job" / "report.json").exists()


def test_the_first_pod_of_an_elastic_job_is_replaced(ddprun_bin, make_hosts, tmp_path):
    """The first pod is killed. The other pods continue, and the replacement of the first pod joins them, because the volume
    contains the run directory and the records of the agents."""
    pods = Pods(ddprun_bin, make_hosts(3), tmp_path, "2:3", "echo $WORLD_SIZE > /runs/size-$GROUP_RANK\nuntil [ -e /runs/finish ]; do sleep 0.05; done")

    def sizes() -> list[str]:
        return [file.read_text() for file in pods.volume.glob("size-*")]

    running = [pods.start(index) for index in range(3)]
    pods.hosts.until(lambda: sizes() == ["3\n"] * 3, "three pods")
    for file in pods.volume.glob("size-*"):
        file.unlink()
    for pid in [running[0].pid, *jobs.children(running[0].pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running[0].wait()
    pods.hosts.until(lambda: sizes() == ["2\n"] * 2, "two pods")
    for file in pods.volume.glob("size-*"):
        file.unlink()
    running[0] = pods.start(0)
    pods.hosts.until(lambda: sizes() == ["3\n"] * 3, "the replacement")
    (pods.volume / "finish").touch()
    codes = [process.wait(timeout=120) for process in running]
    assert codes == [0, 0, 0], pods.hosts.all_text()
