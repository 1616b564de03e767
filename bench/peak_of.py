"""Runs PROGRAM and appends the most memory that it had in RAM, in KiB, to FILE. A process of its own, and a small one: what a program is charged with
begins with the peak of the process that starts it.

usage: peak_of.py FILE PROGRAM [ARGUMENT...]
"""

import resource
import subprocess
import sys

code = subprocess.run(sys.argv[2:], check=False, close_fds=False).returncode  # an agent's channel is among what is open
with open(sys.argv[1], "a", encoding="utf-8") as file:
    file.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
sys.exit(code if code >= 0 else 128 - code)
