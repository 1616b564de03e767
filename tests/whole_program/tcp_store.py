"""A client of PyTorch's TCPStore that does not need torch, for the workers of tests: `import tcp_store; store =
tcp_store.Store()`. test_script_store.py adds this folder to the workers' Python path."""

import contextlib
import os
import pathlib
import select
import socket
import struct

VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, NUM_KEYS, DELETE = range(9)
CANCEL_WAIT, PING = 12, 13


def where() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("=Q", len(raw)) + raw


class Store:
    def __init__(self) -> None:
        self.socket = socket.create_connection(where())
        self.send(struct.pack("=BI", VALIDATE, 0x3C85F7CE))
        self.ping()  # the clients of torch send a ping too; the answer shows that the store has accepted this client

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the store has closed the connection")
            data += part
        return data

    def ping(self) -> int:
        self.send(struct.pack("=BI", PING, 77))
        return struct.unpack("=I", self.read(4))[0]

    def set(self, key: str, value: str) -> None:
        self.send(bytes([SET]) + text(key) + text(value))

    def wait(self, *keys: str) -> None:
        self.send(bytes([WAIT]) + struct.pack("=Q", len(keys)) + b"".join(map(text, keys)))
        assert self.read(1) == b"\0"

    def get(self, key: str) -> str:
        self.wait(key)
        self.send(bytes([GET]) + text(key))
        return self.read(struct.unpack("=Q", self.read(8))[0]).decode()

    def add(self, key: str, amount: int) -> int:
        self.send(bytes([ADD]) + text(key) + struct.pack("=q", amount))
        return struct.unpack("=q", self.read(8))[0]

    def num_keys(self) -> int:
        self.send(bytes([NUM_KEYS]))
        return struct.unpack("=q", self.read(8))[0]


def ended(pid: int) -> None:
    """Returns when the process has ended. Unlike waitpid(), this works for any process, not only for a child."""
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])


def stores() -> list[int]:
    """Returns the pids of ddprun's store processes, which have the same parent as the workers."""
    parent = os.getppid()
    children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "job-store\n"]


def listening() -> set[str]:
    """Returns the local addresses on which a process listens on MASTER_PORT."""
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, port = local.split(":")
            if state == "0A" and int(port, 16) == where()[1]:
                words = [bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8)]
                found.add(socket.inet_ntop(family, b"".join(words)))
    return found
