"""A worker that reports its environment. test_torchrun_contract.py starts it under torchrun and under ddprun.

The worker (probe) connects to the test's socket ($PROBE_SOCKET, an abstract name), and receives the number of its attempt. It
sends its environment, arguments and other observations as one line of JSON. After the test has the reports of all workers, the
probe performs the actions that $PROBE_DO contains for its rank: it prints, fails, or waits for a signal."""

import json
import os
import signal
import socket
import stat
import sys

MARK = "~>"  # occurs in every line that a worker prints
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def observed_environment() -> dict:
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status", encoding="utf-8").read().splitlines() if ":\t" in line)
    stdin = os.fstat(0)
    return {
        "environment": dict(os.environ),
        "argv": sys.argv,
        "python": [sys.prefix, *sys.orig_argv[1:]],
        "name": [__name__, __spec__.name if __spec__ else None],
        "cwd": os.getcwd(),
        "leads": ["session"] * (os.getsid(0) == os.getpid()) + ["group"] * (os.getpgid(0) == os.getpid()),
        "stdin": os.readlink("/proc/self/fd/0") if stat.S_ISCHR(stdin.st_mode) else stat.filemode(stdin.st_mode)[0],
        "terminals": [os.isatty(fd) for fd in (0, 1, 2)],
        "ignored": status["SigIgn"].strip(),
        "blocked": status["SigBlk"].strip(),
        "umask": status["Umask"].strip(),
        "cpus": status["Cpus_allowed_list"].strip(),
        "nice": os.nice(0),
    }


def actions_of(rank: str, attempt: str) -> list[str]:
    commands = json.loads(os.environ.get("PROBE_DO", "{}"))
    for worker in (f"{rank}.{attempt}", rank, f"*.{attempt}", "*"):
        if worker in commands:
            return commands[worker]
    return []


def write_whole(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data):]


def main() -> None:
    node, rank = os.environ["PROBE_NODE"], os.environ["RANK"]
    link = socket.socket(socket.AF_UNIX)
    link.connect("\0" + os.environ["PROBE_SOCKET"])

    def report(message: dict) -> None:
        link.sendall(json.dumps({"node": node, **message}).encode() + b"\n")

    # The test counts the attempts itself, because with torchrun the agents on several nodes have different values of
    # TORCHELASTIC_RESTART_COUNT.
    report({"place": f"{rank} {os.environ['TORCHELASTIC_RUN_ID']}"})
    attempt = link.makefile("rb", buffering=0).readline().decode().strip()
    worker = f"{rank}.{attempt}"
    actions = actions_of(rank, attempt)

    seen = observed_environment()
    stays = "stay" in actions

    def received(number: int, _frame) -> None:
        report({"worker": worker, "signal": signal.Signals(number).name})
        if not stays:
            os._exit(0)

    if stays or "wait" in actions:
        # A pipe is used because signal.pause() does not return for a signal that arrived just before the call.
        come, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for name in FORWARDED:
            signal.signal(getattr(signal, name), received)
    # Output and files are written first, because the launcher may stop this worker after another worker exits.
    for action in actions:
        verb, _, text = action.partition(" ")
        if verb == "error":  # the error file that @record of torch.distributed.elastic would write
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as file:
                file.write(text)
        elif verb == "print":
            write_whole(1, f"{MARK}{text}\n".encode())
        elif verb == "cry":
            write_whole(2, f"{MARK}{text}\n".encode())
        elif verb == "raw":  # bytes, written as in a Python literal
            write_whole(1, text.encode("latin-1").decode("unicode_escape").encode("latin-1"))
    report({"worker": worker, "seen": seen})
    link.recv(1)  # blocks until the test has the reports of all workers

    for action in actions:
        verb, _, text = action.partition(" ")
        if verb in ("print", "cry", "raw", "error"):
            pass  # the loop above has already run this action
        elif verb == "raise":
            raise RuntimeError(text)
        elif verb == "exit":
            sys.exit(int(text))
        elif verb == "kill":
            os.kill(os.getpid(), getattr(signal, text))
        elif verb in ("wait", "stay"):
            while True:
                os.read(come, 1)
        else:
            raise ValueError(f"the probe does not know {action!r}")


if __name__ == "__main__":
    main()
