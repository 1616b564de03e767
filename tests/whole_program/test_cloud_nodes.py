"""Tests of agents with the variables that SkyPilot and dstack set on each node, and of the files in docs/skypilot-dstack.md."""

import pathlib
import re

import jobs
import pytest
import yaml
from node_agents import LINE, worker_line

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def skypilot(rank: int) -> dict[str, str]:
    return {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1",
            "SKYPILOT_NUM_GPUS_PER_NODE": "2", "SKYPILOT_TASK_ID": "sky-2026-11-30_cluster_1"}


def dstack(rank: int) -> dict[str, str]:
    return {"DSTACK_NODE_RANK": str(rank), "DSTACK_NODES_NUM": "2", "DSTACK_MASTER_NODE_IP": "127.0.0.1", "DSTACK_GPUS_PER_NODE": "2",
            "DSTACK_RUN_NAME": "train"}


@pytest.mark.parametrize("variables", [skypilot, dstack])
def test_the_agents_need_no_options_for_nodes(nodes, script, tmp_path, variables):
    job, port = script(LINE), jobs.free_port()
    for rank in range(2):
        nodes.start("--master-port", port, job, **variables(rank))
    assert nodes.wait() == [0, 0], nodes.all_text()
    # the numbers are rank, local rank, world size, local world size and group rank
    assert [worker_line(tmp_path, rank)[:5] for rank in range(4)] == [["0", "0", "4", "2", "0"], ["1", "1", "4", "2", "0"],
                                                                    ["2", "0", "4", "2", "1"], ["3", "1", "4", "2", "1"]]


def test_the_files_of_the_page_are_complete():
    page = (ROOT / "docs" / "skypilot-dstack.md").read_text(encoding="utf-8")
    sky, stack = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.S))
    assert sky["num_nodes"] == 2 and "DDPRUN_TOKEN" in sky["secrets"] and "ddprun " in sky["run"]
    assert sky["volumes"].keys() == {"/runs"} and "--run-dir /runs/" in sky["run"]
    assert stack["type"] == "task" and stack["nodes"] == 2 and stack["env"] == ["DDPRUN_TOKEN"]
    assert any("--run-dir /runs/" in command for command in stack["commands"]) and stack["volumes"] == ["/mnt/shared/runs:/runs"]
