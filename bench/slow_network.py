"""Creates a network namespace whose loopback interface has a limited rate, for soak_bench.py. Workers in the namespace wait for
the network most of the time. So they leave the CPUs to other processes, and most injected faults interrupt a collective. The
namespace is removed at the end. This module needs root."""

import contextlib
import os
import subprocess
from collections.abc import Iterator

from agents import NotAvailable


@contextlib.contextmanager
def slow_network(mbit: float) -> Iterator[tuple[str, ...]]:
    """Yields the words to put before a command, so that it runs in the namespace."""
    name = f"ddpslow{os.getpid()}"
    # Loopback packets have up to 64 KiB, and the burst needs space for several packets.
    queue = ["burst", "256kb", "latency", "5s"]
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True, text=True)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, capture_output=True, text=True)
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{mbit:g}mbit", *queue], check=True,
                       capture_output=True, text=True)
        yield ("nsenter", f"--net=/run/netns/{name}")
    except FileNotFoundError as error:
        raise NotAvailable(f"a slow network cannot be created here: {error}") from None
    except subprocess.CalledProcessError as error:
        raise NotAvailable(f"a slow network cannot be created here: {' '.join(error.cmd)}: {error.stderr.strip()}") from None
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
