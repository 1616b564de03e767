"""Floods ADDRESS PORT for SECONDS with a stranger's connections, as fast as one process can open them. They send nothing, HTTP, noise or half a TLS
greeting; at most 500 stay open. Used by rendezvous_bench.py and by tests/whole_program/test_network_faults.py. Prints the number of opened
connections."""

import os
import random
import socket
import sys
import time

SAYING = [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\x16\x03\x01\xff\xff" + os.urandom(200)]
KEPT = 500


def flood(address: str, port: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    kept: list[socket.socket] = []
    count = 0
    while time.monotonic() < end:
        try:
            stranger = socket.create_connection((address, port), 1)
            stranger.setblocking(False)
            stranger.send(SAYING[count % len(SAYING)])
            kept.append(stranger)
            count += 1
        except OSError:
            continue
        if len(kept) > KEPT:
            kept.pop(random.randrange(KEPT)).close()
    return count


if __name__ == "__main__":
    print(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
