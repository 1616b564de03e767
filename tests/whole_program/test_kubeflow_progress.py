"""Tests that a job sends its progress to Kubeflow's status server (KEP-2779), which `kubectl get trainjob` shows. A local
HTTPS server checks each field of a request. tests/launcher/scheduler_status tests the limits, and the times at which requests
are sent."""

import http.server
import json
import pathlib
import re
import ssl
import subprocess
import sys
import threading

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = """
import ddprun, itertools, time
ticks = itertools.count()
time.monotonic = lambda: float(next(ticks))  # every step is sent to the agent
for n in range(1, 9):
    ddprun.step(n, total=8, loss=1 / n)
"""


class StatusServer:
    """Records the requests. With each request, it replaces the token file, as the kubelet does every hour."""

    def __init__(self, folder: pathlib.Path, status: int = 200):
        self.requests: list[tuple[str, dict, bytes]] = []
        self.token = folder / "token"
        self.token.write_text("first.token\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-keyout", str(folder / "key"),
                        "-out", str(folder / "ca.crt"), "-subj", "/CN=status", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append((self.path, dict(self.headers), body))
                server.token.write_text("second.token\n")
                text = b"" if status == 200 else b"pod is not part of the TrainJob\nmore"
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ca.crt", folder / "key")
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.ca = folder / "ca.crt"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def variables(self, host: str = "localhost", **changes: str) -> dict[str, str]:
        return {"KUBEFLOW_TRAINER_SERVER_URL": f"https://{host}:{self.http.server_port}/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status",
                "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.ca), "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token), **changes}


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    made = []

    def start(status: int = 200) -> StatusServer:
        made.append(StatusServer(folder, status))
        return made[-1]

    yield start
    for each in made:
        each.http.shutdown()
        each.http.server_close()


def train(ddprun_bin, tmp_path, body: str = TRAIN, **variables: str) -> subprocess.CompletedProcess:
    (tmp_path / "train.py").write_text(body)
    return jobs.run([ddprun_bin, "--standalone", "--nproc-per-node", "2", tmp_path / "train.py"], cwd=tmp_path, PYTHONPATH=str(ROOT / "python"),
                    PYTHON_EXEC=sys.executable, PYTHONDONTWRITEBYTECODE="1", **variables)


def test_the_progress_is_posted_with_the_newest_token(ddprun_bin, server, tmp_path):
    """The first and the last report are posted. The six steps between these reports arrive within a minute, so they are not
    posted. Between the two requests, the token changes."""
    status = server()
    done = train(ddprun_bin, tmp_path, **status.variables())
    assert done.returncode == 0 and "Kubeflow" not in done.stderr, done.stderr
    (last,) = status.requests[-1:]
    assert len(status.requests) in (1, 2), "the job may end while the first request is sent; the last one then replaces it"
    path, headers, body = last
    assert path == "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status"
    assert headers["Content-Type"] == "application/json" and headers["Host"] == f"localhost:{status.http.server_port}"
    assert headers["Authorization"] == ("Bearer second.token" if len(status.requests) == 2 else "Bearer first.token")
    document = json.loads(body)
    assert document.keys() == {"trainerStatus"}
    trainer = document["trainerStatus"]
    assert trainer["progressPercentage"] == 100 and trainer["estimatedRemainingSeconds"] == 0
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", trainer["lastUpdatedTime"])
    metrics = {each["name"]: each["value"] for each in trainer["metrics"]}
    assert metrics["step"] == "8" and metrics["loss"] == "0.125"
    assert trainer.keys() == {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}
    assert "first.token" not in done.stdout + done.stderr and "second.token" not in done.stdout + done.stderr


def test_the_token_is_read_for_each_request(ddprun_bin, server, tmp_path):
    status = server()
    for token in ("first.token", "second.token"):
        assert jobs.run([ddprun_bin, "internal-post-kubeflow-status", "{}"], **status.variables()).stdout == ""
        assert status.requests[-1][1]["Authorization"] == f"Bearer {token}"


def test_printed_progress_is_posted(ddprun_bin, server, tmp_path):
    """The program does not report its progress over the worker channel, and only prints it. Rank 1 prints other lines, which
    are ignored."""
    status = server()
    (tmp_path / "job.sh").write_text("#!/bin/sh\n[ $RANK = 1 ] && echo step 1/99 && exit\necho 'Epoch 2/4'; echo 'step 5/10 loss: 0.5' >&2\n")
    (tmp_path / "job.sh").chmod(0o755)
    done = jobs.run([ddprun_bin, "--standalone", "--nproc-per-node", "2", "--no-python", tmp_path / "job.sh"], cwd=tmp_path, **status.variables())
    assert done.returncode == 0 and "Kubeflow" not in done.stderr, done.stderr
    trainer = json.loads(status.requests[-1][2])["trainerStatus"]
    assert trainer["progressPercentage"] == 37
    assert {"name": "loss", "value": "0.5"} in trainer["metrics"] and {"name": "epochs", "value": "4"} in trainer["metrics"]


def test_without_reports_nothing_is_posted(ddprun_bin, server, tmp_path):
    status = server()
    done = train(ddprun_bin, tmp_path, "print('hello')\n", **status.variables())
    assert done.returncode == 0 and status.requests == []


@pytest.mark.parametrize("problem, message", [
    ("refused", "answer 403: pod is not part of the TrainJob"),
    ("wrong host", "the certificate of 127.0.0.1:"),
    ("unknown authority", "cannot read the certificates in "),
    ("no token", "No such file or directory"),
    ("no server", "cannot connect to localhost:1"),
    ("no TLS", "is not an https URL"),
])
def test_a_problem_is_one_line_and_the_job_continues(ddprun_bin, server, tmp_path, problem, message):
    status = server(403 if problem == "refused" else 200)
    variables = status.variables("127.0.0.1" if problem == "wrong host" else "localhost")
    variables |= {"unknown authority": {"KUBEFLOW_TRAINER_SERVER_CA_CERT": "/dev/null"}, "no token": {"KUBEFLOW_TRAINER_SERVER_TOKEN": "/none"},
                  "no server": {"KUBEFLOW_TRAINER_SERVER_URL": "https://localhost:1/x"}, "no TLS": {"KUBEFLOW_TRAINER_SERVER_URL": "http://a/"}}.get(problem, {})
    done = train(ddprun_bin, tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "Kubeflow" in line]
    assert len(lines) == 1 and message in lines[0], done.stderr
    assert "first.token" not in done.stderr and len(status.requests) == 0 or problem == "refused"
