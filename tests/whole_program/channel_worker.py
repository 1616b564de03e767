"""A worker that calls the C ABI of the worker channel through ctypes. channel_worker.c is the same worker in C."""

import ctypes
import os
import signal
import sys
import time

library = ctypes.CDLL(os.environ["CHANNEL_LIBRARY"])
library.ddprun_hello.restype = ctypes.c_void_p
library.ddprun_hello.argtypes = [ctypes.c_char_p]
library.ddprun_figure.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double]
library.ddprun_progress.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 5]
library.ddprun_step_time.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_double] * 3]
library.ddprun_saved.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int64]
library.ddprun_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
library.ddprun_should_stop.argtypes = [ctypes.c_void_p]
library.ddprun_goodbye.argtypes = [ctypes.c_void_p]
library.ddprun_goodbye.restype = None

USAGE, REQUEUE = 1, 85

mode = sys.argv[1]
rank = int(os.environ.get("RANK", "0"))
job = library.ddprun_hello(b"channel_worker 1.0")
if mode == "no job":
    results = library.ddprun_progress(job, 1, 0, 0, 0, 0) + library.ddprun_error(job, USAGE, b"x") + library.ddprun_should_stop(job)
    library.ddprun_goodbye(job)
    print("a job" if job else "no job", results, library.ddprun_progress(job, -1, 0, 0, 0, 0))
elif mode == "progress":
    turns = [os.open(os.environ[f"TURN_{i}"], os.O_RDWR) for i in range(2)]
    for step in range(1, 1001):
        os.write(turns[1 - rank], b"x")  # a barrier: no rank continues before both ranks have reached this line
        os.read(turns[rank], 1)
        library.ddprun_figure(job, b"loss", 1 / step)
        library.ddprun_figure(job, b"accuracy", 0.5)
        library.ddprun_progress(job, step, 1000, 0, 1, step * 8)
        library.ddprun_step_time(job, step, 0.06 if rank else 0.02, 0.001 if rank else 0.041, 0)
    library.ddprun_saved(job, b"/a/model", 1000, 0.25, 77)
    library.ddprun_goodbye(job)
elif mode == "error":
    library.ddprun_progress(job, 7, 0, 0, 0, 0)
    library.ddprun_error(job, USAGE, b"shard 3 is missing")
    sys.exit(1)
elif mode == "behind":
    library.ddprun_progress(job, 4 - rank, 0, 0, 0, 0)
    while True:
        signal.pause()
else:
    for step in range(1, 1000000):
        time.sleep(0.001 + 0.004 * rank)
        library.ddprun_progress(job, step, 1000000, 0, 0, 0)
        stop = library.ddprun_should_stop(job)
        if step == 1:
            print("at_work", rank, step, flush=True)
        if stop:
            library.ddprun_saved(job, None, step, 0, 0)
            print("saved", rank, step, flush=True)
            library.ddprun_goodbye(job)
            sys.exit(REQUEUE)
