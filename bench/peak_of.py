"""Runs PROGRAM and appends its peak memory in RAM, in KiB, to FILE. This is a separate small process, because a program's peak begins with that of
the process that starts it.

usage: peak_of.py FILE PROGRAM [ARGUMENT...]
"""

import resource
import subprocess
import sys

code = subprocess.run(sys.argv[2:], check=False, close_fds=False).returncode  # keeps inherited descriptors open, such as an agent's channel
with open(sys.argv[1], "a", encoding="utf-8") as file:
    file.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
sys.exit(code if code >= 0 else 128 - code)
