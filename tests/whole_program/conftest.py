"""Fixtures for every whole-program test."""

import pathlib

import jobs
import node_agents
import pytest
from asked_jobs import start, waiting  # noqa: F401
from hosts import hosts, make_hosts  # noqa: F401
from slurm import slurm  # noqa: F401


@pytest.fixture(autouse=True)
def nothing_goes_on():
    """Ends every job that a test started, even if the test failed half-way."""
    yield
    jobs.end_started()


@pytest.fixture
def nodes(ddprun_bin, tmp_path):
    nodes = node_agents.Nodes(ddprun_bin, tmp_path)
    yield nodes
    nodes.close()


@pytest.fixture
def script(tmp_path):
    """script(body): a shell program; $OUT is a folder for the files that it writes."""

    def write(body: str) -> pathlib.Path:
        (tmp_path / "out").mkdir(exist_ok=True)
        path = tmp_path / "job.sh"
        path.write_text(f"#!/bin/sh\nOUT={tmp_path}/out\n{body}\n")
        path.chmod(0o755)
        return path

    return write
