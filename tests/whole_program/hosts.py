"""Private hosts on one machine: network namespaces on a bridge, each with its own address, host name, remembered identity and, on request, private
host names. Cables can be pulled, and the bridge can drop traffic between two hosts. The network tests use them."""

import os
import pathlib
import shutil
import subprocess

import pytest

from node_agents import Nodes, keep_records

NAME = f"ddp{os.getpid()}"


def ip(*words: str):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts(Nodes):
    """Agents on hosts 0 to count - 1. The bridge has its own namespace, so nothing is visible outside."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path, count: int = 3, family: int = 4):
        super().__init__(ddprun, folder)
        self.count, self.family = count, family
        self.close_network()  # left by a test that was killed
        try:
            self.build_network()
        except subprocess.CalledProcessError as error:
            self.close_network()
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")

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
        """Returns `command` as it must be run on that host; `names` (name: address) become its /etc/hosts."""
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
        first = [words.pop(0), words.pop(0)] if words[0] == "join" else []
        with open(self.output(number), "wb") as output:
            self.agents.append(subprocess.Popen(
                self.on(host, [str(self.ddprun), *first, "--token-file", str(self.token), *words], names), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, cwd=self.folder,
                env={**self.environment, "HOST": str(host), "XDG_STATE_HOME": keep_records(self.folder / f"state-{host}", f"host{host}")}))
        return self.agents[-1]

    def cable(self, host: int, state: str):
        ip("-n", self.space("sw"), "link", "set", f"port{host}", state)

    def drop(self, *rules: str):
        """Replaces the bridge's rules: it drops traffic that matches one of `rules` (in nft's syntax)."""
        table = "table bridge faults\ndelete table bridge faults\ntable bridge faults {\n chain c {\n  type filter hook forward priority 0\n"
        table += "".join(f"  {rule} drop\n" for rule in rules) + " }\n}\n"
        subprocess.run(["ip", "netns", "exec", self.space("sw"), "nft", "-f", "-"], input=table, check=True, text=True, capture_output=True)

    def cut(self, *ways: tuple[int, int]):
        """Drops all traffic from the first host of each pair to the second."""
        self.drop(*(f'iifname "port{a}" oifname "port{b}"' for a, b in ways))

    def refuse(self, host: int, to: int):
        """Answers TCP packets from that host to the other one with a reset: open connections end, and new ones are refused."""
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
    """make_hosts(count, family): hosts on a private network, removed at the test's end."""
    missing = [tool for tool in ("ip", "nsenter", "unshare", "nft") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"hosts of their own need root and {', '.join(missing) or 'nothing else'}")
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
