"""Acts like an unknown peer that floods a port. For SECONDS it opens connections to ADDRESS PORT, as fast as one process can.
On each connection it sends nothing, an HTTP request, random bytes or half a TLS handshake. At most 500 connections stay open.
At the end it prints the number of opened connections. rendezvous_bench.py and tests/whole_program/test_network_faults.py start
this program.
"""

import os
import random
import socket
import sys
import time

PAYLOADS = [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\x16\x03\x01\xff\xff" + os.urandom(200)]
MAX_OPEN = 500


def flood(address: str, port: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    kept: list[socket.socket] = []
    count = 0
    while time.monotonic() < end:
        try:
            connection = socket.create_connection((address, port), 1)
            connection.setblocking(False)
            connection.send(PAYLOADS[count % len(PAYLOADS)])
            kept.append(connection)
            count += 1
        except OSError:
            continue
        if len(kept) > MAX_OPEN:
            kept.pop(random.randrange(MAX_OPEN)).close()
    return count


if __name__ == "__main__":
    print(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
