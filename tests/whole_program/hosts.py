"""Creates private hosts on one machine, for the network tests. Each host is a network namespace on a bridge, with its own
address, host name and agent state, and optionally an /etc/hosts file. Tests can disconnect a host from the bridge, or drop the
traffic between two hosts."""

import os
import pathlib
import shutil
import subprocess

import pytest

from node_agents import Nodes, keep_records, subcommand_words

NAME = f"ddp{os.getpid()}"


def ip(*words: str):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts(Nodes):
    """Agents on private hosts with the numbers 0 to count - 1. The bridge is in a separate namespace, so the machine's own
    network is not affected."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path, count: int = 3, family: int = 4):
        super().__init__(ddprun, folder)
        self.count, self.family = count, family
        self.close_network()  # removes the namespaces that a killed test has left
        try:
            self.build_network()
        except subprocess.CalledProcessError as error:
            self.close_network()
            pytest.skip(f"cannot create network namespaces on this machine: {error.stderr.strip()}")

    def build_network(self):
        ip("netns", "add", self.space("sw"))
        ip("-n", self.space("sw"), "link", "add", "bridge", "type", "bridge")
        ip("-n", self.space("sw"), "link", "set", "bridge", "up")
        for host in range(self.count):
            space = self.space(host)
            ip("netns", "add", space)
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{host}", "netns", self.space("sw"))
            ip("-n", self.space("sw"), "link", "set", f"port{host}", "master", "bridge", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
            self.add_address(host, self.address(host), "eth0")

    def add_address(self, host: int, address: str, device: str):
        extra = ["nodad"] if ":" in address else []
        ip("-n", self.space(host), "addr", "add", f"{address}/{64 if extra else 24}", "dev", device, *extra)

    @staticmethod
    def space(host: int | str) -> str:
        return f"{NAME}-{host}"

    def address(self, host: int) -> str:
        return f"fd77::{10 + host}" if self.family == 6 else f"10.77.0.{10 + host}"

    def endpoint(self, host: int, port: int = 29400) -> str:
        return f"[{self.address(host)}]:{port}" if self.family == 6 else f"{self.address(host)}:{port}"

    def on(self, host: int, command: list[str], names: dict[str, str] | None = None) -> list[str]:
        """Returns the command line that runs `command` on a host. `names` maps names to addresses. If it is given, the file
        /etc/hosts of the host has these entries."""
        setup = f"hostname host{host}; "
        if names is not None:
            known = self.etc_hosts(host)
            known.write_text("".join(f"{address} {name}\n" for name, address in names.items()))
            setup += f"mount --bind {known} /etc/hosts; "
        return ["nsenter", f"--net=/run/netns/{self.space(host)}", "unshare", "-um", "sh", "-c", f'{setup}exec "$@"', "sh", *command]

    def etc_hosts(self, host: int) -> pathlib.Path:
        return self.folder / f"etc-hosts-{host}"

    def start_on(self, host: int, *args, names: dict[str, str] | None = None) -> subprocess.Popen:
        number = len(self.agents)
        words = [str(a) for a in args]
        first = subcommand_words(words)
        with open(self.output(number), "wb") as output:
            self.agents.append(subprocess.Popen(
                self.on(host, [str(self.ddprun), *first, "--token-file", str(self.token), *words], names), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, cwd=self.folder,
                env={**self.environment, "HOST": str(host), "XDG_STATE_HOME": keep_records(self.folder / f"state-{host}", f"host{host}")}))
        return self.agents[-1]

    def cable(self, host: int, state: str):
        ip("-n", self.space("sw"), "link", "set", f"port{host}", state)

    def drop(self, *rules: str):
        """Makes the bridge drop all traffic that matches one of the rules (in the syntax of nft). These rules replace the
        earlier rules."""
        table = "table bridge faults\ndelete table bridge faults\ntable bridge faults {\n chain c {\n  type filter hook forward priority 0\n"
        table += "".join(f"  {rule} drop\n" for rule in rules) + " }\n}\n"
        subprocess.run(["ip", "netns", "exec", self.space("sw"), "nft", "-f", "-"], input=table, check=True, text=True, capture_output=True)

    def cut(self, *ways: tuple[int, int]):
        """For each pair of hosts, drops all traffic from the first host to the second."""
        self.drop(*(f'iifname "port{a}" oifname "port{b}"' for a, b in ways))

    def refuse(self, host: int, to: int):
        """Makes `host` reject its TCP packets to the host `to` with a reset. This closes open connections and refuses new
        ones."""
        rule = f"{'ip6' if self.family == 6 else 'ip'} daddr {self.address(to)} meta l4proto tcp reject with tcp reset"
        table = f"table inet refusal {{ chain c {{ type filter hook output priority 0; {rule}; }}; }}\n"
        subprocess.run(["ip", "netns", "exec", self.space(host), "nft", "-f", "-"], input=table, check=True, text=True, capture_output=True)

    def close(self):
        super().close()
        self.close_network()

    def close_network(self):
        for name in ["sw", *range(self.count)]:
            subprocess.run(["ip", "netns", "delete", self.space(name)], check=False, capture_output=True)


@pytest.fixture
def make_hosts(ddprun_bin, tmp_path):
    """Returns make_hosts(count, family), which creates hosts on a private network. The hosts are removed at the end of the
    test."""
    missing = [tool for tool in ("ip", "nsenter", "unshare", "nft") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"network namespaces as hosts need root and {', '.join(missing) or 'nothing else'}")
    made = []

    def make(count: int = 3, family: int = 4) -> Hosts:
        made.append(Hosts(ddprun_bin, tmp_path, count, family))
        return made[-1]

    yield make
    for hosts in made:
        hosts.close()


@pytest.fixture
def hosts(make_hosts):
    return make_hosts()
