"""Runs PROGRAM and appends its peak resident memory, in KiB, to FILE. A new process starts with the peak of the process that
forked it. Therefore this program is small and imports little.

usage: peak_of.py FILE PROGRAM [ARGUMENT...]
"""

import resource
import subprocess
import sys

# PROGRAM inherits all open descriptors, since one of them can be the worker channel.
code = subprocess.run(sys.argv[2:], check=False, close_fds=False).returncode
with open(sys.argv[1], "a", encoding="utf-8") as file:
    file.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
sys.exit(code if code >= 0 else 128 - code)
