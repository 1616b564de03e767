"""Fixtures for all whole-program tests."""

import os
import pathlib

import jobs
import node_agents
import pytest
from job_queries import start, waiting  # noqa: F401
from hosts import hosts, make_hosts  # noqa: F401
from live_jobs import undisturbed  # noqa: F401
from slurm import slurm  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """Gives the tests a separate state folder. So they do not use the records and the history of nodes of the user who runs
    the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", node_agents.keep_records(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def no_history_of_nodes(own_state):
    """Removes the recorded failures of this machine that earlier tests have caused, because each job would report them."""
    (pathlib.Path(os.environ["XDG_STATE_HOME"]) / "ddprun" / "node-failures.json").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def no_leftover_processes():
    """Ends every job that a test has started with jobs.start(), even if the test failed."""
    yield
    jobs.end_started()


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> pathlib.Path:
    """Returns the small data set, shared by all tests. A test that changes its files must copy them first."""
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def tiny_images(tmp_path_factory) -> pathlib.Path:
    """Returns the small data set with images of 12 x 12 pixels. A ResNet trains on them in a fifth of the time and runs the
    same code."""
    return jobs.write_small_dataset(tmp_path_factory.mktemp("tiny"), 12)


@pytest.fixture
def nodes(ddprun_bin, tmp_path):
    nodes = node_agents.Nodes(ddprun_bin, tmp_path)
    yield nodes
    nodes.close()


@pytest.fixture
def script(tmp_path):
    """Returns script(body), which writes a shell script and returns its path. In the body, $OUT is a folder for the files that
    the script writes."""

    def write(body: str) -> pathlib.Path:
        (tmp_path / "out").mkdir(exist_ok=True)
        path = tmp_path / "job.sh"
        path.write_text(f"#!/bin/sh\nOUT={tmp_path}/out\n{body}\n")
        path.chmod(0o755)
        return path

    return write
