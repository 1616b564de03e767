"""A worker that reports what it sees. test_torchrun_contract.py starts it under torchrun and under ddprun. It connects to the test's socket
($PROBE_SOCKET, an abstract name), receives its attempt number, and sends its environment, arguments and the like as one JSON line. When the test has
the reports of all workers, it does what $PROBE_DO requests of its rank: print, fail, or wait for a signal."""

import json
import os
import signal
import socket
import stat
import sys

MARK = "~>"  # is part of every line that a worker prints
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def what_i_see() -> dict:
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
    asked = json.loads(os.environ.get("PROBE_DO", "{}"))
    for who in (f"{rank}.{attempt}", rank, f"*.{attempt}", "*"):
        if who in asked:
            return asked[who]
    return []


def write_whole(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data):]


def main() -> None:
    node, rank = os.environ["PROBE_NODE"], os.environ["RANK"]
    link = socket.socket(socket.AF_UNIX)
    link.connect("\0" + os.environ["PROBE_SOCKET"])

    def tell(message: dict) -> None:
        link.sendall(json.dumps({"node": node, **message}).encode() + b"\n")

    # Torchrun's agents on several nodes have different values of TORCHELASTIC_RESTART_COUNT.
    tell({"place": f"{rank} {os.environ['TORCHELASTIC_RUN_ID']}"})
    attempt = link.makefile("rb", buffering=0).readline().decode().strip()
    who = f"{rank}.{attempt}"
    actions = actions_of(rank, attempt)

    seen = what_i_see()
    stays = "stay" in actions

    def received(number: int, _frame) -> None:
        tell({"who": who, "signal": signal.Signals(number).name})
        if not stays:
            os._exit(0)

    if stays or "wait" in actions:
        # signal.pause() does not do: it would miss a signal that comes just before it, until the next signal.
        come, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for name in FORWARDED:
            signal.signal(getattr(signal, name), received)
    for action in actions:  # output and files come first: later, the end of another worker may stop this one
        verb, _, text = action.partition(" ")
        if verb == "error":  # the error file that torch.distributed.elastic's @record would write
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as file:
                file.write(text)
        elif verb == "say":
            write_whole(1, f"{MARK}{text}\n".encode())
        elif verb == "cry":
            write_whole(2, f"{MARK}{text}\n".encode())
        elif verb == "raw":  # bytes as a Python literal writes them
            write_whole(1, text.encode("latin-1").decode("unicode_escape").encode("latin-1"))
    tell({"who": who, "seen": seen})
    link.recv(1)  # all workers have reported what they see

    for action in actions:
        verb, _, text = action.partition(" ")
        if verb in ("say", "cry", "raw", "error"):
            pass  # was done above
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
