"""Tests that ddprun is a drop-in replacement for torchrun on several nodes. Each case runs with agents on the loopback
interface, under torchrun and under ddprun. Only the differences in contract_differences.py are allowed. docs/torchrun.md
describes these differences for users."""

import contract
import contract_differences
import contract_launchers
import pytest
from contract import Case

pytestmark = pytest.mark.needs_torch_python

STATIC = "--nnodes 2 --master-addr 127.0.0.1 --master-port @port"
C10D = "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:@port --rdzv-id job-7"
RANKED = ("--node-rank 0", "--node-rank 1")
ANY = ("", "")
EVERY_STREAM = {"*": ["print out", "cry err"]}

CASES = [
    # static
    Case("static: 1 and 3 workers, roles, tee, log folders", STATIC + " --log-dir @logs -t 3 @script $local_rank", do=EVERY_STREAM, workers=4,
         nodes=("--node-rank 0 --role actor", "--node-rank 1 --role learner --nproc-per-node 3")),
    Case("static: 3 and 1, redirects, an id", "--nnodes 2:2 --master-addr localhost --master-port @port --rdzv-id its-id --log-dir @logs -r 3 @script",
         do=EVERY_STREAM, workers=4, nodes=("--node-rank 0 --nproc-per-node 3", "--node-rank 1")),
    Case("static: three nodes, two roles", "--nnodes 3 --master-addr 127.0.0.1 --master-port @port @script", workers=4,
         nodes=("--node-rank 0 --role a", "--node-rank 1 --role b --nproc-per-node 2", "--node-rank 2 --role a")),
    Case("static: variables", "@script", {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "@port", "PET_NPROC_PER_NODE": "1",
         "PET_RDZV_CONF": "timeout=33", "PET_ROLE": "its_role"}, workers=2, nodes=ANY,
         node_environment=({"PET_NODE_RANK": "0"}, {"PET_NODE_RANK": "1"})),
    Case("static: an endpoint beats the port, options beat variables", "--nnodes 2 --rdzv-endpoint localhost:@port --master-port 1 --local-addr localhost "
         "--rdzv-conf rank=5,timeout=30 --max-restarts 2 @script", {"PET_NODE_RANK": "7", "PET_NNODES": "3"}, workers=2, nodes=RANKED),
    Case("static: each node uses another name for node 0", "--nnodes 2 --master-port @port @script", workers=2,
         nodes=("--node-rank 0 --master-addr 127.0.0.1", "--node-rank 1 --master-addr localhost"), masters=2),
    Case("static: exit 4 everywhere", STATIC + " --log-dir @logs @script", do={"*": ["exit 4"]}, workers=2, nodes=RANKED,
         find=("^@script FAILED$", "^  exitcode  : 4 ")),
    Case("static: SIGTERM to both", STATIC + " @script", do={"*": ["wait"]}, workers=2, nodes=RANKED, send=("SIGTERM",)),

    # c10d
    Case("c10d: 2 and 1 workers, roles, redirects", C10D + " --log-dir @logs -r 1 -t 2 @script", do=EVERY_STREAM, workers=3,
         nodes=("--nproc-per-node 2 --role a", "--role b")),
    Case("c10d: 1 to 2 nodes, a configuration, a local address", "--nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:@port --rdzv-id j "
         "--rdzv-conf join_timeout=50,last_call_timeout=30,read_timeout=20 --local-addr 127.0.0.1 @script", workers=2, nodes=ANY),
    Case("c10d: variables", "@script", {"PET_NNODES": "2:2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:@port", "PET_RDZV_ID": "v"},
         workers=3, nodes=ANY, node_environment=({"PET_NPROC_PER_NODE": "2"}, {"PET_NPROC_PER_NODE": "1"})),
    Case("c10d: no shared store", C10D + " @script", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, workers=2, nodes=ANY),
    Case("c10d: a restart", C10D + " --max-restarts 2 --log-dir @logs -r 1 @script", do={"*": ["print again"], "0.0": ["wait"], "1.0": ["exit 3"]}, workers=4,
         nodes=ANY, find=("FAILED",)),
    Case("c10d: exit 4 everywhere", C10D + " @script", do={"*": ["exit 4"]}, workers=2, nodes=ANY, find=("^  exitcode  : 4 ",)),
]

done: set[str] = set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_as_torchrun(torchrun, ddprun_bin, tmp_path, case):
    contract_differences.compare(torchrun, ddprun_bin, case, tmp_path / "case")
    done.add(case.name)


def test_two_jobs_share_an_endpoint(ddprun_bin, tmp_path):
    """Under torchrun, the second job often fails when the store of the first job ends. So this case runs only under ddprun."""
    case = Case("two jobs", "--nnodes 1:2 --rdzv-conf last_call_timeout=0.2 --rdzv-backend c10d --rdzv-endpoint localhost:@port --nproc-per-node 2 @script",
                nodes=("--rdzv-id one", "--rdzv-id two"))
    seen = contract.observe(contract_launchers.Ddprun(ddprun_bin), case, tmp_path / "case", contract.free_port())
    for node, run_id in zip(seen, ("one", "two"), strict=True):
        assert node.exit == 0, node.output
        assert [(worker["environment"]["TORCHELASTIC_RUN_ID"], worker["environment"]["WORLD_SIZE"]) for worker in node.workers.values()] == [(run_id, "2")] * 2


def test_every_intended_difference_still_exists():
    if done != {case.name for case in CASES}:
        pytest.skip("runs only after all cases of the table")
    assert [each.why for each in contract_differences.DIFFERENCES if each.nodes and each not in contract_differences.used] == []
