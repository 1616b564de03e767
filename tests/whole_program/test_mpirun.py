"""Tests of ddptrain and ddprun under mpirun of Open MPI (Debian package openmpi-bin). They are skipped if mpirun is
missing."""

import shutil

import jobs
import pytest
from node_agents import LINE, worker_line

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="needs mpirun (Debian: openmpi-bin)")


def test_mpirun_starts_ddptrain(ddprun_bin, ddptrain_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    done = jobs.run(["mpirun", "-n", 2, "--oversubscribe", "--bind-to", "none", "-x", f"MASTER_PORT={jobs.free_port()}", ddptrain_bin,
                     "--run-dir", tmp_path / "theirs", config], **AS_ROOT)
    assert done.returncode == 0, done.stderr
    ours = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "ours", config])
    assert ours.returncode == 0, ours.stderr
    assert jobs.weights_digest(tmp_path / "theirs") == jobs.weights_digest(tmp_path / "ours")
    assert jobs.losses(tmp_path / "theirs") == jobs.losses(tmp_path / "ours")


def test_several_agents_on_a_node_are_refused(ddprun_bin, script):
    done = jobs.run(["mpirun", "-n", 2, "--oversubscribe", ddprun_bin, script("true")], **AS_ROOT)
    assert done.returncode == 2
    assert "mpirun starts 2 processes on a node (OMPI_COMM_WORLD_LOCAL_SIZE)" in done.stderr
    assert "Use mpirun -N 1 ddprun" in done.stderr


def test_one_agent_is_a_job_on_one_machine(ddprun_bin, script, tmp_path):
    done = jobs.run(["mpirun", "-n", 1, ddprun_bin, "--nproc-per-node", 2, script(LINE)], **AS_ROOT)
    assert done.returncode == 0, done.stderr
    assert [worker_line(tmp_path, rank)[2] for rank in range(2)] == ["2", "2"]


def test_mpirun_starts_an_agent_on_each_host(make_hosts, script, tmp_path):
    """mpirun runs on host 0, and starts its daemon on host 1 with a stand-in for ssh that enters the host's namespace."""
    hosts = make_hosts(2)
    remote = tmp_path / "remote-shell"
    cases = "".join(f"{hosts.address(host)}) space={hosts.space(host)}; name=host{host};;\n" for host in range(2))
    remote.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\ncase $1 in\n{cases}esac\nshift\n'
                      'exec nsenter --net=/run/netns/$space unshare -um sh -c "hostname $name; $*"\n')
    remote.chmod(0o755)
    job = script(LINE)
    command = ["mpirun", "-N", "1", "--host", f"{hosts.address(0)},{hosts.address(1)}", "--mca", "plm_rsh_agent", str(remote),
               "--mca", "oob_tcp_if_include", "eth0", "-x", "XDG_STATE_HOME", str(hosts.ddprun), "--token-file", str(hosts.token)]
    words = hosts.on(0, [*command, "--master-addr", hosts.address(0), "--nproc-per-node", "2", str(job)])
    done = jobs.run(words, cwd=tmp_path, **{**AS_ROOT, "XDG_STATE_HOME": hosts.environment["XDG_STATE_HOME"]})
    assert done.returncode == 0, done.stderr
    # the numbers are rank, local rank, world size, local world size and group rank
    assert [worker_line(tmp_path, rank)[:5] for rank in range(4)] == [["0", "0", "4", "2", "0"], ["1", "1", "4", "2", "0"],
                                                                    ["2", "0", "4", "2", "1"], ["3", "1", "4", "2", "1"]]
    unknown = jobs.run(hosts.on(0, [*command, str(job)]), cwd=tmp_path, **AS_ROOT)
    assert unknown.returncode == 2
    assert "no variable of mpirun contains it; add --master-addr" in unknown.stderr
