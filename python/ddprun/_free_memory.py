"""Computes how much memory this process can still allocate. The machine and each cgroup of the process set a limit, and the
lowest limit applies. Pages of the file cache that the kernel can drop count as free."""

import os
import sys


def _limits():
    """Yields (limit, used bytes without reclaimable file pages) for each cgroup of this process that has a memory limit."""
    def number(path):
        try:
            with open(path) as file:
                return int(file.read())
        except (OSError, ValueError):  # "max" means that there is no limit
            return None

    def given_back(folder, name):
        try:
            with open(os.path.join(folder, "memory.stat")) as file:
                return sum(int(line.split()[1]) for line in file if line.startswith(name + " "))
        except (OSError, ValueError):
            return 0

    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().split("\n")
    except OSError:
        return
    for line in lines:
        _, kinds, path = (line.split(":", 2) + ["", ""])[:3]
        if kinds == "":
            root, limit, used, files = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in kinds.split(","):
            root, limit, used, files = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        path = path.strip("/")
        while True:
            folder = os.path.join(root, path)
            most, now = number(os.path.join(folder, limit)), number(os.path.join(folder, used))
            if most is not None and now is not None:
                yield most, now - given_back(folder, files)
            if not path:
                break
            path = os.path.dirname(path)


def free_memory():
    """Returns the free memory in bytes. This process shares it with all processes that have the same limits."""
    left = sys.maxsize
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    left = int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return min([left] + [most - used for most, used in _limits()])


def size_text(size):
    for unit, name in ((2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB")):
        if size >= unit:
            return "%.3g %s" % (size / unit, name)
    return "%d B" % size
