"""A network namespace whose loopback sends at a given rate, for soak_bench.py. Workers that wait for the network leave the CPUs to other processes,
and faults interrupt collectives. Needs root and removes everything at the end."""

import contextlib
import os
import subprocess
from collections.abc import Iterator

from agents import NotHere


@contextlib.contextmanager
def slow_network(mbit: float) -> Iterator[tuple[str, ...]]:
    """Yields the words with which a command must begin to run in it."""
    name = f"ddpslow{os.getpid()}"
    queue = ["burst", "256kb", "latency", "5s"]  # the burst must hold several of loopback's packets of 64 KiB
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True, text=True)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, capture_output=True, text=True)
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{mbit:g}mbit", *queue], check=True,
                       capture_output=True, text=True)
        yield ("nsenter", f"--net=/run/netns/{name}")
    except FileNotFoundError as error:
        raise NotHere(f"a slow network cannot be made here: {error}") from None
    except subprocess.CalledProcessError as error:
        raise NotHere(f"a slow network cannot be made here: {' '.join(error.cmd)}: {error.stderr.strip()}") from None
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
