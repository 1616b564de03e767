"""A private Slurm cluster on one machine: slurmctld, a slurmd on each host of a private network (hosts.py), and the
authentication daemon munged with a new key. All files are in one folder, and all processes end with the test. test_slurm.py
and test_slurm_submit.py use it."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from hosts import Hosts

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo")
CONFIG = """
ClusterName=ddprun
SlurmctldHost=host0({control})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=16817
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
JobRequeue=1
NodeName=host[0-{last}] NodeAddr={addresses} Port=17000 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=host[0-{last}] Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """The cluster. run() runs `srun`, `sbatch` and other commands on the first host."""

    def __init__(self, hosts: Hosts, folder: pathlib.Path, more: str = ""):
        """`more` contains additional lines for slurm.conf."""
        self.hosts, self.folder = hosts, folder
        self.daemons: list[subprocess.Popen] = []
        for name in ("state", "spool", "logs"):
            (folder / name).mkdir(parents=True)
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        folder.chmod(0o755)
        addresses = ",".join(hosts.address(n) for n in range(hosts.count))
        (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, control=hosts.address(0), last=hosts.count - 1, addresses=addresses) + more)
        self.environment = {**hosts.environment, "SLURM_CONF": str(folder / "slurm.conf")}
        self.names = {f"host{n}": hosts.address(n) for n in range(hosts.count)} | {"localhost": "127.0.0.1"}
        self.daemon(0, "munged", "--force", "--foreground", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key",
                    f"--pid-file={folder}/munged.pid", f"--log-file={folder}/logs/munged.log", f"--seed-file={folder}/munged.seed")
        hosts.until((folder / "munge.socket").exists, "munged")
        self.daemon(0, "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for host in range(hosts.count):
            self.daemon(host, "slurmd", "-D", "-N", f"host{host}", "-f", str(folder / "slurm.conf"))
        hosts.until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == str(hosts.count), "idle nodes")

    def daemon(self, host: int, *command: str):
        with open(self.folder / "logs" / f"{command[0]}-{host}.out", "wb") as output:
            self.daemons.append(subprocess.Popen(self.hosts.on(host, list(command), self.names), stdin=subprocess.DEVNULL, stdout=output,
                                                 stderr=subprocess.STDOUT, env=self.environment))

    def run(self, *command, timeout: float = 120) -> subprocess.CompletedProcess:
        return subprocess.run(self.hosts.on(0, [str(word) for word in command], self.names), env=self.environment, cwd=self.hosts.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)

    def until_gone(self, job: str):
        self.hosts.until(lambda: not self.run("squeue", "-h", "-j", job).stdout.strip(), f"the end of Slurm's job {job}")

    def logs(self) -> str:
        return "".join(f"--- {log.name} ---\n{log.read_text(errors='replace')[-4000:]}" for log in sorted((self.folder / "logs").iterdir()))

    def close(self):
        # A failed test may leave a job. The daemons must run until the processes of the job have ended, because the daemons
        # kill these processes.
        self.run("scancel", "--user=root", "--signal=KILL")
        self.run("scancel", "--user=root")
        with contextlib.suppress(pytest.fail.Exception):
            self.hosts.until(lambda: not self.run("squeue", "-h").stdout.strip(), "the end of all jobs")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@contextlib.contextmanager
def cluster_on(hosts: Hosts, more: str = ""):
    """Runs a Slurm cluster on the hosts."""
    # The path must be short, because the paths of Slurm's sockets start with it. A batch job does not start if the path of a
    # socket is longer than the kernel allows.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        cluster = Slurm(hosts, pathlib.Path(folder), more)
        try:
            yield cluster
        finally:
            cluster.close()


def skip_without_slurm():
    missing = [tool for tool in NEEDED if not shutil.which(tool)]
    if missing:
        pytest.skip(f"a Slurm cluster needs {', '.join(missing)}: slurmctld, slurmd, slurm-client and munge")


@pytest.fixture
def slurm(make_hosts):
    skip_without_slurm()
    with cluster_on(make_hosts(2)) as cluster:
        yield cluster
