"""Simulates two hosts on one machine, for launch_observations.py. The hosts are network namespaces, connected by a veth pair.
Each host resolves its own name to 127.0.1.1, which is the default of Debian. The namespaces are removed at the end. This module
needs root."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Iterator

from agents import NotAvailable


@dataclasses.dataclass
class Hosts:
    commands: list[tuple[str, ...]]  # for each host: the words to put before a command, so that it runs on that host
    first_address: str


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_hosts(folder: pathlib.Path) -> Iterator[Hosts]:
    if os.geteuid() != 0:
        raise NotAvailable("network namespaces need root")
    names = [f"ddpbench{os.getpid()}-{host}" for host in range(2)]
    commands = []
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for host, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.0.{10 + host}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            file = folder / f"hosts-{host}"
            file.write_text(f"127.0.0.1 localhost\n127.0.1.1 benchhost{host}\n", encoding="utf-8")
            commands.append(("nsenter", f"--net=/run/netns/{name}", "unshare", "-u", "-m", "--propagation", "private", "sh", "-c",
                             f'hostname benchhost{host}; mount --bind {file} /etc/hosts; exec "$@"', "sh"))
        yield Hosts(commands, "10.77.0.10")
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise NotAvailable(f"network namespaces cannot be created here: {error}") from None
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
